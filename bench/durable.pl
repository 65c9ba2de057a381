# bench/durable.pl DIRECTORY PORT STANDBY_PORT DATABASE TEXT
#
# Waits until a standby has all of its primary, promotes it, and tells when it
# took the first write and when it granted the first token, to a session that
# was there before.  (The primary is not stopped: it grants nothing meanwhile.)

use strict;
use warnings FATAL => 'all';

use PgClient;
use Time::HiRes qw(sleep time);

my ($host, $port, $standby_port, $dbname, $text) = @ARGV;
my $primary = PgClient->new(host => $host, port => $port, dbname => $dbname,
	user => 'postgres');
my ($promoter, $writer, $asker) = map {
	PgClient->new(host => $host, port => $standby_port, dbname => $dbname,
		user => 'postgres')
} 1 .. 3;
my $end = $primary->one('SELECT pg_current_wal_flush_lsn()');

sleep 0.02
  until $promoter->one("SELECT pg_last_wal_replay_lsn() >= '$end'") eq 't';

# Asks until it is no error any more that this is a standby.
sub until_taken
{
	my ($client, $sql) = @_;

	for (;;)
	{
		my $res = $client->send($sql)->result(600);
		return $res->{at} if !$res->{error};
		die $res->{error} unless $res->{error}->code =~ /^(?:25006|55000)$/;
		sleep 0.001;
	}
}

my $start = time;
$promoter->query('SELECT pg_promote(false)');
my $written = until_taken($writer, 'CREATE TABLE written ()');
my $granted = until_taken($asker,
	"SELECT 1 / token_get('first', owner => 'w2', wait => NULL)::int");

printf "%s: first write after %.3f s, first grant after %.3f s\n", $text,
  $written - $start, $granted - $start;
