# Fences grow: across puts, lapses, restarts, crashes, failover, dump and
# restore, and a new CREATE EXTENSION.  And a standby grants nothing.
# P08 P69 P36

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TokenlockTest;

# The largest fence that was given so far, by name; all of one database.
my %last;

# Takes and puts some tokens in a new session; one test for all of them.
sub grows
{
	my ($node, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $c = session($node, dbname => $opt{dbname} // 'postgres');
	my @bad;

	for my $k (@{ $opt{names} || [ 'k', 'l' ] })
	{
		for my $owner ("NULL", "'w1'")
		{
			for (1 .. 3)
			{
				my ($granted, $fence, $answer) = $c->row(
					"SELECT granted, fence, answer
					 FROM token_request('$k', ttl => '1h', owner => $owner,
						wait => '3min')");
				push @bad, "$k: $answer" if $granted ne 't' || $answer ne 'new';
				push @bad, "$k: $fence after $last{$k}"
				  if exists $last{$k} && $fence <= $last{$k};
				push @bad, "$k: $fence is too large for some clients"
				  if $fence >= 2**53;
				$last{$k} = $fence;
				$c->query("SELECT token_put('$k', owner => $owner)");
			}
		}
	}
	$c->quit;
	return ok(!@bad, $name) || diag(join "\n", @bad);
}

my $node = new_server(
	'primary',
	init => { allows_streaming => 1 },
	conf => "fsync = on\nrestart_after_crash = on\nmax_connections = 50\n"
	  . "wal_keep_size = 64MB\n"
	  # after a crash, nothing is granted for so long
	  . "tokenlock.default_ttl = '1s'\ntokenlock.grace = '2s'\n");

grows($node, 'at first');
grows($node, 'put and taken again');

# Many more than one session's worth.
$node->safe_psql('postgres',
	"SELECT bool_and(token_get('n' || i, owner => 'w1')),
		bool_and(token_put('n' || i, owner => 'w1'))
	 FROM generate_series(1, 20000) i");
grows($node, 'after many others');

# What drew the first number of a run may be rolled back.
$node->restart;
my $c = session($node);
$c->query("BEGIN; SELECT token_get('x'); ROLLBACK");
$c->query("BEGIN READ ONLY; SELECT token_get('y'); COMMIT");
$c->quit;
grows($node, 'after a restart whose first grant was rolled back');
$node->stop('immediate');
$node->start;
grows($node, 'after a crash');

$node->restart;
$c = session($node);
$c->query("BEGIN READ ONLY");
my ($f) = $c->row("SELECT fence FROM token_request('k')");
cmp_ok($f, '>', $last{k}, 'first grant after a start in READ ONLY');
$last{k} = $f;
$c->query("COMMIT");
is($c->one("SELECT pg_current_xact_id_if_assigned()"),
	undef, 'no transaction id for it');
$node->stop('immediate');
$node->start;
grows($node, 'after a crash in which the token was held');

for my $round (1 .. 3)
{
	$node->safe_psql('postgres', 'CHECKPOINT') if $round == 2;
	$node->stop('immediate');
	$node->start;
	grows($node, "after crash $round of three");
}

# A backend is killed: the server starts again by itself.
$c = session($node);
$c->query("SELECT token_get('k'), token_get('l', owner => 'w1', ttl => '1h')");
($last{k}) = $c->row("SELECT token_fence('k')");
kill 'KILL', $c->pid;
$c->send('SELECT 1');
ok($c->done(60), 'the killed session has ended');
ok( until_true(
		sub {
			my $new = eval { session($node) } or return 0;
			my $ok = eval { $new->one('SELECT 1') };
			$new->quit;
			return $ok;
		}),
	'the server is back');
my $lives = session($node);
answers($lives, "token_put('l', owner => 'w1')", 't',
	'the lease goes on, as it is a long one');
answers($lives, "(SELECT count(*) FROM token_holders WHERE name = 'k')",
	'0', 'the session token ended with its session');
$lives->quit;
grows($node, 'after a backend was killed', names => ['k']);

# Dump and restore: into a new database of the same server.
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ],
	'pg_dump');
sub restored
{
	my ($to, $name) = @_;
	$to->safe_psql('postgres', 'CREATE DATABASE copy');
	$to->command_ok(
		[
			'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			$to->connstr('copy')
		],
		"restored into $name");
	my %keep = %last;
	grows($to, "in $name", dbname => 'copy');
	$to->stop('immediate');
	$to->start;
	grows($to, "in $name after a crash", dbname => 'copy');
	%last = %keep;
	return;
}
restored($node, 'a new database');

# .. and into a server that has a history of its own.
my $other = new_server('other', conf => "fsync = on\n");
restored($other, 'another server');
$other->stop;

# A new extension in the same database.
$node->safe_psql('postgres', 'DROP EXTENSION tokenlock');
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
grows($node, 'after DROP and CREATE EXTENSION');
$node->restart;
grows($node, 'and a restart');
# The clock that seeds a new extension's numbers counts seconds.
my $second = int(time);
until_true(sub { int(time) > $second });
$node->safe_psql('postgres', 'DROP EXTENSION tokenlock');
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
grows($node, 'after a restart between DROP and CREATE');

# The extension in a schema of its own.
$node->safe_psql('postgres',
	"CREATE DATABASE moved");
$node->safe_psql('moved',
	"CREATE SCHEMA s; CREATE EXTENSION tokenlock SCHEMA s");
my $s = session($node, dbname => 'moved');
$s->query("SET search_path = pg_catalog");
is($s->one("SELECT s.token_get('k')"), 't', 'search_path does not matter');
$s->query("ALTER EXTENSION tokenlock SET SCHEMA public");
is($s->one("SELECT public.token_get('l')"), 't', 'nor does a move');
$s->quit;
$node->restart;
$s = session($node, dbname => 'moved');
is($s->one("SELECT public.token_get('k')"), 't', 'after a restart, too');
$s->quit;

# What a client can do to the sequence, it must not.
$node->safe_psql('postgres', 'CREATE ROLE plain LOGIN');
$s = session($node, user => 'plain');
for my $sql ("SELECT setval('tokenlock_fence', 1)",
	"SELECT nextval('tokenlock_fence')")
{
	is($s->fails($sql)->code, '42501', "refused: $sql");
}
answers($s, "token_get('m')", 't', 'yet that role may take tokens');
$s->quit;

#
# A standby.
#
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'hot_standby = on');
$standby->start;
grows($node, 'while a standby follows');
$node->wait_for_catchup($standby);

my $r = session($standby);
for my $sql (
	"SELECT token_get('k')",
	"SELECT token_get('k', owner => 'w1')",
	"SELECT token_get('k', scope => 'transaction')",
	"SELECT token_get('k', wait => '1s')",
	"SELECT granted FROM token_request('k')")
{
	my $e = $r->fails($sql);
	ok($e, "P08, P69: error: $sql") or next;
	like($e->text, qr/recovery/, 'which names recovery');
	is($e->code, '55000', 'its SQLSTATE');
}
is($r->one("SELECT count(*) FROM $_"), '0', "P08: $_ can be read")
  for qw(token_holders token_waiters);
is($r->fails("DISCARD ALL"), undef, 'DISCARD ALL works');

# Failover in the course of things: this session lives through it.
grows($node, 'before the failover');
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
my ($granted, $fence) =
  $r->row("SELECT granted, fence FROM token_request('k', wait => '3min')");
is($granted, 't', 'the session on the former standby is granted now');
cmp_ok($fence, '>', $last{k}, 'with a larger fence');
$last{k} = $fence;
$r->quit;
ok( until_true(
		sub { $standby->safe_psql('postgres',
				'SELECT count(*) FROM token_holders') == 0 }),
	'it ends');
grows($standby, 'after the failover');
$standby->stop('immediate');
$standby->start;
grows($standby, 'after a crash of the new primary');

# Failover to a standby that lacks the last WAL: the reservation is lost.
$standby->backup('again');
my $third = PostgreSQL::Test::Cluster->new('third');
$third->init_from_backup($standby, 'again', has_streaming => 1);
$third->start;
$standby->wait_for_catchup($third);
$third->stop;
# Several starts, each of which reserves anew, out of the standby's sight.
for (1 .. 3)
{
	$standby->restart;
	grows($standby, 'a primary that is alone');
}
$standby->stop('immediate');
$third->start;
$third->promote;
grows($third, 'after a failover that lost the last WAL');
$third->restart;
grows($third, 'and a restart');

# A new extension after a failover, when nothing but the clock is left.
$third->safe_psql('postgres', 'DROP EXTENSION tokenlock');
$third->restart;
$third->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
grows($third, 'after DROP, a restart and CREATE on the promoted server');
$third->stop;

done_testing();
