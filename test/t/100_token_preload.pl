# P42: without shared_preload_libraries each call is an error that says so,
# and the session goes on.  (P69: it is never an answer.)

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $node = PostgreSQL::Test::Cluster->new('bare');
$node->init;

# TEMP_CONFIG may preload the library; the last line of a setting counts.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;

my $C = session($node);
is($C->one("SHOW shared_preload_libraries"), '', 'nothing is preloaded');
ok($C->query('CREATE EXTENSION tokenlock'), 'P42: the extension is created');

my @calls = (
	"SELECT token_get('k')",
	"SELECT token_get('k', owner => 'w1', ttl => '1h')",
	"SELECT token_get('k', scope => 'transaction')",
	"SELECT token_get('k', wait => NULL)",
	"SELECT * FROM token_request('k')",
	"SELECT token_put('k')",
	"SELECT token_put_all()",
	"SELECT token_put_all(owner => 'w1')",
	"SELECT token_renew('k')",
	"SELECT token_fence('k')",
	"SELECT token_guard('k')",
	"SELECT token_get_all('{k,l}')",
	"SELECT token_break('k', 1)",
	"CALL token_acquire('k')",
	"SELECT * FROM token_holders",
	"SELECT * FROM token_waiters",
	"SELECT * FROM token_stats",
	"SELECT * FROM token_stats_by_name",
	"SELECT * FROM claim_jobs(NULL::jobs, 'w1')",
	"SELECT finish_jobs('jobs', 'w1', '{1}'::int[])",
	"SELECT fail_jobs('jobs', 'w1', '{1}'::int[])",
	"SELECT release_jobs('jobs', 'w1')",
	"SELECT release_jobs('jobs', 'w1', '{1}'::int[])",
	"SELECT renew_jobs('jobs', 'w1')",
	"SELECT wake_jobs('jobs')",
	"CALL wait_jobs('jobs', '1s')",
	"SELECT job_table_set('jobs', paused => true)",
	"SELECT job_table_reset('jobs')",
	"SELECT * FROM job_tables",
	"SELECT * FROM job_workers");

$C->query("CREATE TABLE jobs (id int PRIMARY KEY, status text DEFAULT '0',
	sid text)");

for my $sql (@calls)
{
	my $e = $C->fails($sql);
	ok($e, "P42: error: $sql") or next;
	is($e->code, '55000', 'its SQLSTATE');
	like($e->hint, qr/shared_preload_libraries/, 'its hint');
	is($C->one('SELECT 1'), '1', 'the session goes on');
}

# In a transaction it is an error like any other.
$C->query('BEGIN');
ok($C->fails("SELECT token_get('k')"), 'error in a transaction');
is($C->fails('SELECT 1')->code, '25P02', 'which has then failed');
$C->query('ROLLBACK');

ok($C->query('DISCARD ALL'), 'DISCARD ALL works');
ok($C->query('SELECT pg_advisory_unlock_all()'), 'advisory locks work');
is($C->fails("LOAD 'tokenlock'"), undef, 'loading it by hand is no harm')
  or diag($C->fails("LOAD 'tokenlock'"));
like($C->fails("SELECT token_get('k')")->hint,
	qr/shared_preload_libraries/, 'and no help');
ok($C->query('DROP EXTENSION tokenlock'), 'the extension is dropped');
$C->quit;

# The same extension once the library is preloaded.
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'tokenlock'");
$node->restart;
$C = session($node);
answers($C, "token_get('k')", 't', 'preloaded, the same extension works');
$C->quit;

$node->stop;
done_testing();
