# tokenlock.memory is full of workers: an error that says what to do, nothing
# half done, and room again when some have lapsed.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $node = new_server('memory', bare => 1,
	conf => "tokenlock.memory = '1MB'\n");
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
my ($A, $B) = (session($node), session($node));
$A->query("CREATE TABLE jobs (id int PRIMARY KEY, status text DEFAULT '0',
	sid text)");
$A->query('INSERT INTO jobs SELECT generate_series(1, 100)');
answers($A, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'first', 3,
	ttl => '1 h'))", 3, 'there is room for a first worker');

# Half of them lapse soon.
my ($n, $e) = (0);
until ($e || $n > 20_000)
{
	$e = $B->fails("SELECT renew_jobs('jobs', 'w$n', '"
		  . ($n % 2 ? '1 h' : '10 ms') . "')");
	$n++ if !$e;
}
ok($e, "an error after $n workers");
is($e->code, '53400', 'its SQLSTATE');
like($e->hint, qr/tokenlock\.memory/, 'its hint');
cmp_ok($n, '>', 300, 'a useful number');

$e = $A->fails("SELECT * FROM claim_jobs(NULL::jobs, 'another', 3)");
ok(!$e || $e->code eq '53400', 'a claim meets the same error')
  or diag($e);
is($A->one("SELECT count(*) FROM jobs WHERE status = '2' AND sid <> 'first'"),
	$e ? 0 : 3, 'and nothing is half done');
answers($A, "renew_jobs('jobs', 'first')", 't', 'who has a record goes on');
answers($A, "finish_jobs('jobs', 'first', ARRAY[1, 2])", 2, 'finishes');
answers($A, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'first', 5))", 5,
	'and claims');

ok( until_true(
		sub { !$B->fails("SELECT renew_jobs('jobs', 'newcomer', '1 h')") }, 30),
	'there is room again for others when some have lapsed');
answers($A, "(SELECT claimed FROM job_workers WHERE sid = 'first')", 5,
	'and those that live are still known');

done_testing();
