# P92: many heirs.  A worker dies with a thousand jobs, and eight take them over
# at the same time: each job goes to one of them, and counts one attempt more.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $node = new_server('heirs');
my @S = map { session($node) } 0 .. 8;

$S[0]->query("CREATE TABLE jobs (id bigint PRIMARY KEY, attempts int,
	status text DEFAULT '0', sid text)");
$S[0]->query('INSERT INTO jobs SELECT generate_series(1, 1000)');
$S[0]->query("SELECT job_table_set('jobs', attempts_column => 'attempts',
	max_attempts => 9)");
answers($S[0], "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'w0', 1000,
	ttl => '1 s'))", 1000, 'one worker has them all');
ok( until_true(
		sub {
			$S[0]->one("SELECT live FROM job_workers WHERE sid = 'w0'") eq 'f';
		}),
	'and dies');

# All claim at once, and finish what the last answer had, until none has work.
my (%owner, @last, $twice);
my $work = 1;
while ($work)
{
	$work = 0;
	for my $i (1 .. 8)
	{
		my $done = join ',', @{ $last[$i] || [] };

		$S[$i]->send("SELECT id FROM claim_jobs(NULL::jobs, 'w$i', 50,
			done => '{$done}'::bigint[])");
	}
	for my $i (1 .. 8)
	{
		my $result = $S[$i]->result;

		die "$result->{error}" if $result->{error};
		$last[$i] = [ map { $_->[0] } @{ $result->{rows} } ];
		for my $id (@{ $last[$i] })
		{
			$twice++ if $owner{$id};
			$owner{$id} = $i;
			$work = 1;
		}
	}
}
is(scalar keys %owner, 1000, 'each job was taken over');
is($twice, undef, 'none twice');
is( $S[0]->one("SELECT string_agg(DISTINCT status || attempts, ' ') FROM jobs"),
	'12', 'all are done, at the second attempt');
is( $S[0]->one("SELECT concat_ws(' ', claimed, finished, taken_over)
	FROM job_tables WHERE job_table = 'jobs'::regclass"),
	'2000 1000 1000', 'and counted');

$node->stop;
done_testing();
