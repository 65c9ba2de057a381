# Leases longer than tokenlock.grace are on disk before they are answered, and
# survive a crash with their holder, their fence and their end.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('long',
	conf => "fsync = on\ntokenlock.grace = '10s'\n"
	  . "tokenlock.default_ttl = '2s'\nmax_prepared_transactions = 5\n");

# With "at once", not after the grace that short leases of before leave.
sub crash
{
	my ($at_once) = @_;

	$node->stop('immediate');
	$node->start;
	my $c = session($node);
	until_true(sub { !defined $c->one('SELECT grace_until FROM token_stats') })
	  unless $at_once;
	return $c;
}

sub holds
{
	my ($c, $owner, $name, $fence, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	answers($c, "token_fence('$name', owner => '$owner')", $fence, $test);
	return;
}

my $A = session($node);
my ($f) = $A->row("SELECT fence FROM token_request('k', owner => 'w1', ttl => '1h')");
my $ends = $A->one("SELECT expires_at FROM token_holders WHERE name = 'k'");
my $role = $A->one("SELECT role FROM token_holders WHERE name = 'k'");
my $B = crash('at once');
is($B->one('SELECT grace_until FROM token_stats'), undef,
	'a long lease alone leaves no grace');
holds($B, 'w1', 'k', $f, 'it survives a crash with its holder and fence');
is( $B->one("SELECT abs(extract(epoch FROM expires_at - '$ends')) < 0.1
		FROM token_holders WHERE name = 'k'"),
	't', 'its end');
is($B->one("SELECT role FROM token_holders WHERE name = 'k'"), $role,
	'and its role');
is($B->one("SELECT abs(extract(epoch FROM acquired_at - '$ends') + 3600) < 0.1
		FROM token_holders WHERE name = 'k'"), 't', 'and beginning');
answers($B, "token_get('k')", 'f', 'nobody else is granted');
answers($B, "token_get('k', owner => 'w1')", 't', 'its owner may ask again');
answers($B, "token_renew('k', '2h', owner => 'w1')", 't', 'and renew');
$B->query('BEGIN');
is($B->one("SELECT token_guard('k', owner => 'w1')"), $f, 'and guard');
$B->query('CREATE TABLE guarded ()');
is($B->fails('COMMIT'), undef, 'a transaction that commits');
$B = crash();
is( $B->one("SELECT expires_at - clock_timestamp() > '110 min'
		FROM token_holders WHERE name = 'k'"),
	't', 'a renewal survives, too');
my ($g) = $B->row("SELECT fence FROM token_request('other', owner => 'w1', ttl => '1h')");
cmp_ok($g, '>', $f, 'fences grow beyond those that survived');
answers($B, "token_put('k', owner => 'w1')", 't', 'put');
$B = crash();
answers($B, "token_renew('k', owner => 'w1')", 'f', 'what was put stays put');
answers($B, "token_get('k', owner => 'w2')", 't', 'and is free');
holds($B, 'w1', 'other', $g, 'another is not affected');

# A rollback, a read-only transaction.
$B->query('BEGIN READ ONLY');
answers($B, "token_get('ro', owner => 'w1', ttl => '1h')", 't', 'READ ONLY');
answers($B, 'pg_current_xact_id_if_assigned()', undef, 'without an id');
$B->query('ROLLBACK');
my $ro = $B->one("SELECT token_fence('ro', owner => 'w1')");
$B = crash();
holds($B, 'w1', 'ro', $ro, 'a lease is no part of its transaction');

# Permits, shared holds, an upgrade; several; without an end.
answers($B, "token_get('p', owner => 'w$_', ttl => '1h', capacity => 2)", 't')
  for 1, 2;
answers($B, "token_get('s', owner => 'w1', ttl => '1h', shared => true)", 't');
answers($B, "token_get('u', owner => 'w1', ttl => '1h', shared => true)", 't');
answers($B, "token_get('u', owner => 'w1')", 't', 'an upgrade');
answers($B, "token_get_all('{x,y,z}', owner => 'w1', ttl => '1h')", 't');
answers($B, "token_get('e', owner => 'w1', ttl => '2000000 years')", 't');
my %fence = map { $_ => $B->one("SELECT token_fence('$_', owner => 'w1')") }
  qw(p s u x y z e);
$B = crash();
holds($B, 'w1', $_, $fence{$_}, "$_ survives") for sort keys %fence;
answers($B, "token_get('p', owner => 'w3', ttl => '1h', capacity => 2)", 'f',
	'permits are counted');
answers($B, "token_get('s', owner => 'w3', shared => true)", 't',
	'shared is shared');
answers($B, "token_get('u', owner => 'w3', shared => true)", 'f',
	'upgraded is not');
is($B->one("SELECT expires_at FROM token_holders WHERE name = 'e'"), undef,
	'no end');
answers($B, "token_put_all(owner => 'w1')", 9, 'all are put');
answers($B, "token_put('p', owner => 'w2')", 't');
answers($B, "token_put('s', owner => 'w3')", 't');
$B = crash();
answers($B, "(SELECT count(*) FROM token_holders)", '0', 'and stay so');

# From short to long and back.
until_true(
	sub { !defined $B->one('SELECT grace_until FROM token_stats') });
answers($B, "token_get('k', owner => 'w1', ttl => '9s')", 't', 'short');
answers($B, "token_renew('k', '1h', owner => 'w1')", 't', 'renewed to long');
$f = $B->one("SELECT token_fence('k', owner => 'w1')");
$B = crash();
holds($B, 'w1', 'k', $f, 'survives');
my $renewed = time;
answers($B, "token_renew('k', '10s', owner => 'w1')", 't', 'and to short');
$B = crash();
answers($B, "token_renew('k', owner => 'w1')", 'f', 'does not');
answers($B, "token_get('k', wait => '2min', owner => 'w2', ttl => '1h')", 't');
cmp_ok(time - $renewed, '>=', 10, 'but it is nobody else\'s before its end');
answers($B, "token_get('k', owner => 'w2', ttl => '1s')", 't',
	'asked again to short');
answers($B, "token_get('k', wait => '1min', owner => 'w3', ttl => '1h')", 't',
	'lapsed, and granted to the next');
$f = $B->one("SELECT token_fence('k', owner => 'w3')");

# A break; a lapse while it is long.
answers($B, "token_break('k', $f)", 't', 'broken');
$B = crash();
holds($B, 'w3', 'k', undef, 'a break survives');
$node->append_conf('postgresql.conf', "tokenlock.grace = '500ms'");
$node->reload;
$B->quit;
$B = session($node);
answers($B, "token_get('k', owner => 'w1', ttl => '1s', wait => '1min')", 't');
my $C = session($node);
$C->send("SELECT token_get('k', owner => 'w2', wait => '1min', ttl => '1h')");
is($C->result->{rows}[0][0], 't', 'a waiter gets it at the lapse');
$f = $B->one("SELECT token_fence('k', owner => 'w2')");
$B = crash();
holds($B, 'w1', 'k', undef, 'the lapsed one is not revived');
holds($B, 'w2', 'k', $f, 'the later one is');
$C->quit;

# Two sessions of one owner, that renew and put at the same time.
my @s = map { session($node) } 1 .. 4;
answers($B, "token_put('k', owner => 'w2')", 't');
for my $round (1 .. 15)
{
	answers($B, "token_get('k', owner => 'w1', ttl => '1h')", 't')
	  if $round == 1;
	$s[$_]->send("SELECT token_get('k', owner => 'w1', ttl => '"
		  . (1 + $_) . "h')") for 0 .. 2;
	$s[3]->send("SELECT token_put('k', owner => 'w1')");
	$_->result for @s;
}
$B->query("SELECT token_get('k', owner => 'w1', ttl => '1h')");
$f = $B->one("SELECT token_fence('k', owner => 'w1')");
$_->quit for @s;
$B = crash();
holds($B, 'w1', 'k', $f, 'one record of one lease');
answers($B, "(SELECT count(*) FROM token_holders)", '1', 'no other');

# Many: more than a page has room for, with long names.
my $long = 'x' x 240;
answers($B, "(SELECT bool_and(token_get('$long' || i, owner => '$long', ttl => '1h'))
	FROM generate_series(1, 40) i)", 't', 'forty leases');
answers($B, "(SELECT count(token_put('$long' || i, owner => '$long'))
	FROM generate_series(1, 20) i)", '20', 'twenty put');
$B = crash();
answers($B, "(SELECT count(*) FROM token_holders WHERE owner = '$long')",
	'20', 'twenty are left');
answers($B, "(SELECT bool_and(token_get('n' || i, owner => 'w1', ttl => '1h'))
	FROM generate_series(1, 20) i)", 't', 'slots are used again');
is($B->one("SELECT pg_relation_size('tokenlock_lease') / 8192"), '5',
	'without a page more');
is($B->one("SELECT count(*) FROM tokenlock_lease"), '1',
	'a scan of the sequence finds one row');

# A clean stop.
$B->quit;
$node->restart;
$B = session($node);
holds($B, 'w1', 'k', $f, 'it survives a clean stop as well');
answers($B, "token_put_all(owner => '$long')", '20');

# Without the library: the server recovers by itself.
$B->quit;
$node->stop('immediate');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM tokenlock_lease'), '1',
	'recovery without the library');
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'tokenlock'");
$node->start;
$B = session($node);
holds($B, 'w1', 'k', $f, 'and with it again the lease is there');

# DROP EXTENSION ends them; a dump and a copy carry none.
$B->quit;
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
$C = session($node, dbname => 'copy');
answers($C, "token_get('k')", 't', 'a copied database has none');
answers($C, "token_get('l', owner => 'w1', ttl => '1h')", 't', 'but its own');
$C->quit;
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ],
	'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[
		'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
		$node->connstr('restored')
	],
	'restored');
$C = session($node, dbname => 'restored');
answers($C, "token_get('k')", 't', 'P36: a dump carries no holders');
$C->quit;
$node->safe_psql('postgres', 'DROP DATABASE copy');
$node->safe_psql('postgres', 'DROP EXTENSION tokenlock CASCADE');
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
$B = session($node);
answers($B, "token_get('k', owner => 'w2', ttl => '1h')", 't',
	'DROP EXTENSION ends them');
$B = crash();
answers($B, "(SELECT string_agg(owner, ',') FROM token_holders)", 'w2',
	'for good');
$B->quit;

# With a grace of 0 every lease is on disk.
$node->append_conf('postgresql.conf', 'tokenlock.grace = 0');
$node->reload;
$B = session($node);
answers($B, "token_get('z', owner => 'w1', ttl => '50s')", 't');
$B = crash('at once');
is($B->one('SELECT grace_until FROM token_stats'), undef, 'no grace at 0');
isnt($B->one("SELECT token_fence('z', owner => 'w1')"), undef,
	'and every lease survives');
$B->quit;
$node->stop;
done_testing();
