# bench/handover.pl DIRECTORY PORT DATABASE
#
# Milliseconds from sending a put to the return of the get that waited for it:
# session tokens, leases and pg_advisory_lock, which take turns, as do the two
# sessions.  Prints each, for note_all of bench/common.

use strict;
use warnings FATAL => 'all';

use PgClient;
use Time::HiRes qw(sleep time);

my ($host, $port, $dbname) = @ARGV;
my $tries = $ENV{TRIES} || 300;
my @sessions =
  map { PgClient->new(host => $host, port => $port, dbname => $dbname) } 0, 1;
my %calls = (
	advisory => [ 'pg_advisory_lock(42)', 'pg_advisory_unlock(42)' ],
	session => [ q{token_get('h', wait => NULL)}, q{token_put('h')} ],
	lease => [
		q{token_get('h', wait => NULL, owner => 'session %d')},
		q{token_put('h', owner => 'session %d')} ]);

sub call
{
	no warnings 'redundant';    # those without an owner
	return 'SELECT ' . sprintf $_[0], $_[1];
}

for my $try (1 .. $tries)
{
	my ($one, $two) = $try % 2 ? (0, 1) : (1, 0);

	for my $kind (sort keys %calls)
	{
		my ($get, $put) = @{ $calls{$kind} };

		$sessions[$one]->query(call($get, $one));
		$sessions[$two]->send(call($get, $two));
		sleep 0.003;
		my $start = time;
		$sessions[$one]->send(call($put, $one));
		$sessions[$two]->answer;
		printf "from a put to the waiter's return\t%s\t%d\t%.4f\n", $kind,
		  $try, 1000 * ($sessions[$two]->{result}{at} - $start);
		$sessions[$one]->answer;
		$sessions[$two]->query(call($put, $two));
	}
}
