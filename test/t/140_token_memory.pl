# tokenlock.memory: where it ends is an error that says what to do, and nothing
# that was held is lost.  And leases leave the lock table alone.  P41

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;


my $node = new_server('memory', bare => 1);
my $c = session($node);
my ($min) = $c->row("SELECT min_val || unit FROM pg_settings
	WHERE name = 'tokenlock.memory'");
$c->quit;
$node->append_conf('postgresql.conf', "tokenlock.memory = '$min'");
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
my ($A, $B) = (session($node), session($node));

# Takes tokens until there is no room; returns how many it holds then, and the
# error.  A batch that fails keeps what it got: neither leases nor sessions'
# tokens go with a transaction.
sub fill
{
	my ($client, $prefix, $args) = @_;
	my $e;

	for (my $n = 0; $n < 300_000; $n += 100)
	{
		$e = $client->fails("SELECT count(token_get('$prefix' || i $args))
			FROM generate_series($n + 1, $n + 100) i");
		last if $e;
	}
	return ($client->one("SELECT count(*) FROM token_holders
		WHERE name LIKE '$prefix%'"), $e);
}

my ($n, $e) = fill($A, 'n', ", owner => 'w1', ttl => '1h'");
ok($e, "an error after $n leases in $min");
is($e->code, '53400', 'its SQLSTATE');
like($e->hint, qr/tokenlock\.memory/, 'its hint');
cmp_ok($n, '>', 500, 'a useful number');

answers($A, "(SELECT count(*) FROM token_holders)", $n, 'all are still held');
answers($A, "(SELECT bool_and(token_renew('n' || i, '1h', owner => 'w1'))
	FROM generate_series(1, $n) i)", 't', 'all can be renewed');
answers($B, "token_get('n1')", 'f', 'what is held is busy');
answers($A, "token_get('n1', owner => 'w1')", 't',
	'and is its owner\'s when it asks again');
is($B->fails("SELECT token_get('another')")->code,
	'53400', 'another session meets the same error');
is($B->fails("SELECT token_get('another', owner => 'w9')")->code,
	'53400', 'for a lease, too');
answers($B, "token_put('another')", 'f', 'and holds nothing');
answers($B, "(SELECT count(*) FROM token_holders WHERE name = 'another')",
	'0', 'nor does the view show it');

# In a transaction it is an error as any other.
$B->query('BEGIN');
$B->query('SAVEPOINT s');
is($B->fails("SELECT token_get('another', scope => 'transaction')")->code,
	'53400', 'in a subtransaction');
$B->query('ROLLBACK TO s');
is($B->one('SELECT 1'), '1', 'which can be rolled back');
$B->query('COMMIT');

# A waiter needs room, too: an error or a wait, but nothing in between.
$B->query("SET statement_timeout = '100ms'");
like($B->fails("SELECT token_get('n1', wait => '10s')")->code,
	qr/^(53400|57014)$/, 'waiting at the limit');
$B->query("RESET statement_timeout");
answers($B, "(SELECT count(*) FROM token_waiters)", '0', 'nobody waits');

# Puts make room.
answers($A, "(SELECT count(token_put('n' || i, owner => 'w1'))
	FROM generate_series(1, 50) i)", '50');
answers($B, "token_get('another')", 't', 'room after puts');
answers($B, "token_put('another')", 't');
answers($A, "token_put_all(owner => 'w1')", $n - 50, 'all the rest is put');
my ($again) = fill($A, 'm', ", owner => 'w1', ttl => '1h'");
cmp_ok($again, '>=', $n * 0.9, "room for as many after all was put: $again");
$A->query("SELECT token_put_all(owner => 'w1')");

# Who waits already is served, however full it is by then.
{
	my @s = map { session($node) } 1 .. 3;
	my $w = session($node, app => 'watch');
	answers($A, "token_get('w', owner => 'w1', ttl => '1h')", 't');
	waits($w, $_, "token_get('w', wait => '30s')") for @s;
	fill($A, 'v', ", owner => 'w1', ttl => '1h'");
	answers($A, "token_put('w', owner => 'w1')", 't');
	for my $s (@s)
	{
		my $res = $s->result;
		is($res->{error} ? "$res->{error}" : $res->{rows}[0][0],
			't', 'a waiter is served when memory is full');
		answers($s, "token_put('w')", $res->{error} ? 'f' : 't');
	}
	$_->quit for @s, $w;
	until_gone($B, map { $_->pid } @s);
	$A->query("SELECT token_put_all(owner => 'w1')");
}

# Names come and go: each leaves the room that it took.
answers($A, "(SELECT bool_and(token_get('c' || i) AND token_put('c' || i))
	FROM generate_series(1, 20000) i)", 't', 'many names, one after the other');
answers($A, "(SELECT bool_and(token_get('c' || i, owner => 'w1', ttl => '1us'))
	FROM generate_series(1, 20000) i)", 't', 'many leases that lapse at once');
answers($A, "(SELECT bool_or(token_get('c' || i, wait => '1us'))
	FROM generate_series(1, 100) i
	WHERE token_get('c' || i, owner => 'w1', ttl => '1h'))", 'f',
	'many waits that come to nothing');
$A->query("SELECT token_put_all(owner => 'w1')");
answers($B, "(SELECT count(*) FROM token_holders)", '0', 'all are gone');

# So does the lapse of leases, with no call by anybody.
($again) = fill($A, 'l', ", owner => 'w1', ttl => '3s'");
my $end = time + 10;
ok( until_true(
		sub { $B->one("SELECT count(*) FROM token_holders") == 0 }, 10),
	"$again leases lapse");
answers($B, "token_get('another')", 't', 'room after the lapse');
answers($B, "token_put('another')", 't');
($again) = fill($A, 'o', ", owner => 'w2', ttl => '1h'");
cmp_ok($again, '>=', $n * 0.9, "room for as many after the lapse: $again");
$A->query("SELECT token_put_all(owner => 'w2')");

# Session tokens: the end of the session makes room.
$node->append_conf('postgresql.conf', 'max_locks_per_transaction = 1000');
$node->restart;
($A, $B) = (session($node), session($node));
($again, $e) = fill($A, 's', "");
is($e->code, '53400', "session tokens meet the same limit: $again");
answers($A, "(SELECT count(*) FROM token_holders)", $again, 'all are held');
$A->quit;
until_gone($B, $A->pid);
answers($B, "(SELECT count(*) FROM token_holders)", '0', 'all are free');
$A = session($node);
my ($more) = fill($A, 's', "");
# (The counters by name have a block of the allocator by now.)
cmp_ok($more, '>=', $again * 0.8, "room for as many: $more");
$A->quit;
until_gone($B, $A->pid);

# Names of full length need more room each.
($again, $e) = fill($B, 'x' x 240, ", owner => 'w1', ttl => '1h'");
is($e->code, '53400', "long names: $again");
answers($B, "token_put_all(owner => 'w1')", $again, 'all are put');

# A database that is dropped leaves none.
$node->safe_psql('postgres', 'CREATE DATABASE db1');
$A = session($node, dbname => 'db1');
$A->query('CREATE EXTENSION tokenlock');
($again) = fill($A, 'd', ", owner => 'w1', ttl => '1h'");
$A->quit;
until_gone($B, $A->pid);
($more, $e) = fill($B, 'e', ", owner => 'w1', ttl => '1h'");
cmp_ok($more, '<', 50, "the limit is that of all databases together: $more");
$node->safe_psql('postgres', 'DROP DATABASE db1');
($more, $e) = fill($B, 'e', ", owner => 'w1', ttl => '1h'");
cmp_ok($more, '>', $again * 0.9, "DROP DATABASE leaves none behind: $more");
$B->one("SELECT token_put_all(owner => 'w1')");    # they would outlive a restart
$_->quit for $A, $B;

# P41: 100000 leases, and a query that locks much beside them.
$node->append_conf('postgresql.conf',
	"tokenlock.memory = '64MB'\nmax_locks_per_transaction = 64\n"
	  . "tokenlock.grace = '1h'");    # none of these is to go to disk
$node->restart;
($A, $B) = (session($node), session($node));
$A->query("CREATE TABLE parts (id int) PARTITION BY RANGE (id)");
$A->query("DO \$\$ BEGIN FOR i IN 0..199 LOOP
	EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES FROM (%s)
		TO (%s)', i, i, i + 1);
	END LOOP; END \$\$");
$A->query("INSERT INTO parts SELECT generate_series(0, 199)");
my $count = 100_000;
answers($A, "(SELECT bool_and(token_get('n' || i, owner => 'w1', ttl => '10min'))
	FROM generate_series(1, $count) i)", 't', "P41: $count leases");
answers($A, "(SELECT count(*) FROM token_holders)", $count, 'all are held');
answers($B, "(SELECT count(*) FROM parts)", '200',
	'P41: a query on 200 partitions works');
answers($B, "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')",
	'0', 'P41: leases have no locks');
answers($A, "token_put_all(owner => 'w1')", $count, 'all are put');
answers($A, "(SELECT count(*) FROM token_holders)", '0', 'none is left');

$node->stop;
done_testing();
