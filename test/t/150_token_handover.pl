# Many hand-overs among many sessions: no wake-up is lost, no update is.
# P57 P15

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('handover',
	conf => "max_connections = 60\nlog_statement = none\n");
my $w = session($node, app => 'watch');

# Runs the code in so many processes, and returns what each printed.
sub in_parallel
{
	my ($n, $code) = @_;
	my @pipes;

	for my $i (0 .. $n - 1)
	{
		my $pid = open(my $fh, '-|') // die "could not fork: $!";
		if ($pid == 0)
		{
			my $line = eval { $code->($i, session($node)) };
			print defined $line ? "$line\n" : "error $@\n";
			close STDOUT;
			# No END blocks here: the server is the parent's.
			require POSIX;
			POSIX::_exit(0);
		}
		push @pipes, $fh;
	}
	return map { my $fh = $_; my $line = <$fh> // ''; chomp $line; $line } @pipes;
}

# P57: no answer f, no single wait over 1 s where nothing else runs.  Half of the sessions use an owner
# name of their own.
for my $mix ('half of them leases', 'sessions only', 'leases only')
{
	my $rounds = !full_run() ? 250 : $mix =~ /half/ ? 10_000 : 1000;
	my @got = in_parallel(
		16,
		sub {
			my ($i, $c) = @_;
			my $own = $mix eq 'leases only' || ($mix =~ /half/ && $i % 2);
			my $owner = $own ? ", owner => 'w$i'" : '';
			my ($refused, $longest, $denied) = (0, 0, 0);
			for (1 .. $rounds)
			{
				my $res = $c->send("SELECT token_get('k', wait => '30s'$owner)")
				  ->result;
				die "$res->{error}" if $res->{error};
				$refused++ if $res->{rows}[0][0] ne 't';
				$longest = $res->{took} if $res->{took} > $longest;
				$denied++ if $c->one("SELECT token_put('k'$owner)") ne 't';
			}
			return "$refused $denied " . sprintf('%.4f', $longest);
		});
	is(scalar(grep { /^0 0 [\d.]+$/ } @got),
		16, "P57: $mix: no answer f in 16 times $rounds rounds")
	  or diag(join "\n", @got);
	my ($longest) = sort { $b <=> $a } map { (split)[2] } grep { /^\d/ } @got;
	cmp_ok($longest, '<', busy(), "P57: $mix: no long wait (longest $longest)");
}

# P15: get, read, write, commit: no update is lost.
{
	my $rounds = full_run() ? 1000 : 250;
	$node->safe_psql('postgres',
		"CREATE TABLE acct (v int); INSERT INTO acct VALUES (0)");
	my @got = in_parallel(
		4,
		sub {
			my ($i, $c) = @_;
			my $granted = 0;
			for (1 .. $rounds)
			{
				$c->query('BEGIN');
				$granted++
				  if $c->one("SELECT token_get('acct:1', wait => NULL,
					scope => 'transaction')") eq 't';
				my $v = $c->one('SELECT v FROM acct');
				$c->query("UPDATE acct SET v = $v + 1");
				$c->query('COMMIT');
			}
			return $granted;
		});
	is_deeply(\@got, [ ($rounds) x 4 ], 'P15: all are granted');
	is($w->one('SELECT v FROM acct'),
		4 * $rounds, "P15: v has grown by 4 times $rounds");
}

# The same with a lease that is put before the commit would lose updates; with
# the commit first and the put after it, it does not.
{
	my $rounds = full_run() ? 1000 : 250;
	$w->query('UPDATE acct SET v = 0');
	in_parallel(
		4,
		sub {
			my ($i, $c) = @_;
			for (1 .. $rounds)
			{
				$c->one("SELECT token_get('acct:1', wait => NULL,
					owner => 'w$i')");
				my $v = $c->one('SELECT v FROM acct');
				$c->query("UPDATE acct SET v = $v + 1");
				$c->one("SELECT token_put('acct:1', owner => 'w$i')");
			}
			return 1;
		});
	is($w->one('SELECT v FROM acct'), 4 * $rounds, 'leases, put after commit');
}

# Leases that lapse while many wait: each lapse wakes the next.
{
	my @got = in_parallel(
		8,
		sub {
			my ($i, $c) = @_;
			# Grants are dated by the server: answers may reach us late.
			my ($granted, $end) = $c->row(
				"SELECT granted, extract(epoch FROM expires_at)
				 FROM token_request('lapse', wait => '30s', ttl => '100ms',
					owner => 'w$i')");
			return "$granted $end";
		});
	my @times = sort { $a <=> $b } map { (split)[1] } grep { /^t/ } @got;
	is(scalar @times, 8, 'each of eight gets the lease that nobody puts')
	  or diag(join "\n", @got);
	my @gaps = map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times;
	is(scalar(grep { $_ < 0.098 } @gaps), 0, 'none before the one before lapsed')
	  or diag("@gaps");
	cmp_ok($times[-1] - $times[0], '<', 0.7 + busy(), 'and each soon after it')
	  or diag("@gaps");
}

is($w->one("SELECT count(*) FROM token_waiters"), '0', 'nobody waits');
ok( until_true(
		sub { $w->one("SELECT count(*) FROM token_holders") == 0 }, 10),
	'nobody holds');
is($w->one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
	'0', 'no lock is left');
$node->stop;
done_testing();
