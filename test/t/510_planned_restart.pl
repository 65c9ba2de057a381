# A clean stop and start: leases with what is left of them, places in line,
# workers and fences are there again; and nothing of it after a later crash.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('restart',
	conf => "fsync = on\ntokenlock.default_ttl = '2s'\n");
my $file = $node->data_dir . '/pg_stat/tokenlock.state';

my $A = session($node);
answers($A, "token_get('long', owner => 'w1', ttl => '1h')", 't');
answers($A, "token_get('short', owner => 'w1', ttl => '1s')", 't');
my $aged = time;
answers($A, "token_get('age', owner => 'w1', ttl => '20s')", 't');
answers($A, "token_get('p', owner => 'w$_', ttl => '30s', capacity => 2)", 't')
  for 1, 2;
answers($A, "token_get('s', owner => 'w$_', ttl => '30s', shared => true)", 't')
  for 1, 2;
answers($A, "token_get('session')", 't');
answers($A, "token_get('queue', owner => 'w0', ttl => '1h')", 't');
answers($A, "(SELECT place FROM token_request('queue', owner => 'w$_',
	keep_place => '10min'))", $_, "place $_")
  for 1 .. 3;
$A->query("CREATE TABLE jobs (id int PRIMARY KEY, status text DEFAULT '0', sid text)");
$A->query('INSERT INTO jobs SELECT generate_series(1, 6)');
answers($A, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'a', 2, ttl => '1h'))", '2');
answers($A, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'b', 2, ttl => '1s'))", '2');
my %fence = map { $_ => $A->one("SELECT token_fence('$_', owner => 'w1')") }
  qw(long age p s);
my $ends = $A->one("SELECT expires_at FROM token_holders WHERE name = 'long'");
$A->quit;

$node->stop;
ok(-e $file, 'a clean stop leaves a file');
sleep 1.1;
$node->start;
ok(!-e $file, 'which is gone after the start');

$A = session($node);
is($A->one('SELECT grace_until FROM token_stats'), undef, 'no grace');
answers($A, "token_fence('$_', owner => 'w1')", $fence{$_}, "$_ is held")
  for sort keys %fence;
answers($A, "(SELECT abs(extract(epoch FROM expires_at - '$ends')) < 0.1
	FROM token_holders WHERE name = 'long')", 't', 'to the same end');
answers($A, "(SELECT pid IS NULL FROM token_holders WHERE name = 'long')",
	't', 'by nobody that is connected');
answers($A, "token_get('long')", 'f', 'and busy for others');
answers($A, "token_renew('long', owner => 'w1')", 't', 'it can be renewed');
answers($A, "(SELECT expires_at - clock_timestamp() > '59 min'
	FROM token_holders WHERE name = 'long')", 't', 'for the ttl it had');
answers($A, "token_get('short', owner => 'w2')", 't',
	'leases age while the server is down');
answers($A, "token_get('session', owner => 'w2')", 't',
	'session tokens ended with their sessions');
answers($A, "token_get('p', owner => 'w3', capacity => 2)", 'f', 'permits');
answers($A, "token_get('p', owner => 'w2', capacity => 2)", 't');
answers($A, "token_get('s', owner => 'w3', shared => true)", 't', 'shared');
answers($A, "token_get('s', owner => 'w4')", 'f');
is( $A->one("SELECT string_agg(owner || ' ' || place, ',' ORDER BY place)
		FROM token_waiters"),
	'w1 1,w2 2,w3 3', 'places in line');
answers($A, "token_put('queue', owner => 'w0')", 't');
answers($A, "token_get('queue', owner => 'w2', keep_place => '10min')", 'f');
answers($A, "token_get('queue', owner => 'w1', keep_place => '10min')", 't',
	'are served in their order');
my ($f) = $A->row("SELECT fence FROM token_request('new', owner => 'w1')");
cmp_ok($f, '>', $fence{age}, 'fences go on growing');

# Workers: one lives, the other lapsed while the server was down.
answers($A, "(SELECT live FROM job_workers WHERE sid = 'a')", 't');
is($A->one("SELECT string_agg(id::text, ',') FROM claim_jobs(NULL::jobs, 'c', 6)"),
	'3,4,5,6', 'a worker lives on, a lapsed one is taken over at once');
answers($A, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'a', 6))", '2');

# Twice in a row, with nobody in between.
$node->restart;
$node->restart;
$A->quit;
$A = session($node);
answers($A, "token_fence('long', owner => 'w1')", $fence{long},
	'still there after restarts in which nobody looked');
answers($A, "token_fence('age', owner => 'w1')", $fence{age});
answers($A, "token_get('age', wait => '1min', owner => 'w2')", 't');
cmp_ok(time - $aged, '>=', 20, 'it ended when it should');
$A->quit;

# An old file must not come back after a crash.
$A = session($node);
answers($A, "token_get('old', owner => 'w1', ttl => '30s')", 't');
$A->quit;
$node->stop;
my $old = slurp_file($file);
$node->start;
$A = session($node);
answers($A, "token_put('old', owner => 'w1')", 't');
answers($A, "token_get('old', owner => 'w2', ttl => '3s')", 't');
$A->quit;
$node->stop('immediate');
open(my $fh, '>:raw', $file) or die;
print $fh $old;
close $fh;
$node->start;
$A = session($node);
answers($A, "token_renew('old', owner => 'w1')", 'f',
	'an old file is not believed after a crash');
isnt($A->one('SELECT grace_until FROM token_stats'), undef, 'but a grace');
ok(!-e $file, 'and it is removed');
$A->quit;

# A clean stop in the grace carries it over, and a damaged file is as none.
$node->stop;
$node->start;
$A = session($node);
isnt($A->one('SELECT grace_until FROM token_stats'), undef,
	'a clean stop in the grace carries it over');
answers($A, "token_get('old', owner => 'w3')", 'f');
ok( until_true(
		sub {
			!defined $A->one('SELECT grace_until FROM token_stats');
		}, 100),
	'it ends');
answers($A, "token_get('old', owner => 'w3', ttl => '30s')", 't');
$A->quit;
$node->stop;
my $bytes = slurp_file($file);
substr($bytes, length($bytes) / 2, 1) ^= "\x01";
open($fh, '>:raw', $file) or die;
print $fh $bytes;
close $fh;
$node->start;
$A = session($node);
is($A->one("SELECT answer FROM token_request('old', owner => 'w4')"),
	'grace', 'a damaged file is not believed');
like(slurp_file($node->logfile), qr/is damaged and was ignored/, 'and logged');
answers($A, "token_get('old', wait => '2min', owner => 'w4', ttl => '1s')", 't');
$A->quit;

# Without the library in between.
$A = session($node);
answers($A, "token_get('k', owner => 'w1', ttl => '25s')", 't');
$A->quit;
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
$node->safe_psql('postgres', 'SELECT 1');
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'tokenlock'");
$node->start;
$A = session($node);
is($A->one("SELECT answer FROM token_request('k', owner => 'w4')"),
	'grace', 'a start without the library makes the file void');
$A->quit;
$node->stop;
done_testing();
