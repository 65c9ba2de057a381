# What a key with many waiting jobs costs the claims of others: next to nothing.
#
# Buffers are counted, which do not depend on the machine.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $rows = full_run() ? 200_000 : 20_000;
my $node = new_server('keys_cost',
	conf => "shared_buffers = 64MB\nautovacuum = off\n"
	  . "synchronous_commit = off\n");
my ($A, $B, $old) = map { session($node) } 1 .. 3;

# Buffers that a claim touches, at the least of several times.
sub buffers
{
	my @counts;

	for (1 .. 5)
	{
		my $plan = join "\n", map { $_->[0] }
		  $B->rows("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off)
			SELECT id FROM claim_jobs(NULL::jobs, 'b', 1, resume => false)");
		my ($hit) = $plan =~ /shared hit=(\d+)/;
		my ($read) = $plan =~ /read=(\d+)/;
		push @counts, ($hit // 0) + ($read // 0);
	}
	return (sort { $a <=> $b } @counts)[0];
}

for my $case (
	[ 'by id', '', 'id' ],
	[ 'in an order of their own', ", order_by => 'pr, id'", 'pr, id' ])
{
	my ($name, $order, $columns) = @{$case};

	$A->query($_) for (
		'DROP TABLE IF EXISTS jobs',
		"CREATE TABLE jobs (id int PRIMARY KEY, k text, pr int DEFAULT 0,
			status text DEFAULT '0', sid text)",
		"CREATE INDEX ON jobs (k, status, $columns) WHERE status IN ('0', '2')",
		"CREATE INDEX ON jobs (status, $columns) WHERE status IN ('0', '2')",
		"CREATE INDEX ON jobs (sid, id) WHERE status = '2'",
		"SELECT job_table_set('jobs', key_column => 'k'$order)",
		# what is known of the table when plans are made: one key, none claimed
		"INSERT INTO jobs SELECT i, 'busy' FROM generate_series(1, $rows) i",
		'ANALYZE jobs');
	is($A->one("SELECT id FROM claim_jobs(NULL::jobs, 'a', 1)"), 1,
		"$name: a long job begins");
	$A->query("INSERT INTO jobs SELECT $rows + i, 'k' || i
		FROM generate_series(1, 2000) i");

	# Nothing that is done can be removed.
	$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$old->query('SELECT 1 FROM jobs LIMIT 1');
	is($B->one("SELECT id FROM claim_jobs(NULL::jobs, 'b', 1)"), $rows + 1,
		"$name: jobs of others are behind those that wait for it");
	my $first = buffers();
	for (1 .. 100)
	{
		$B->query("SELECT id FROM claim_jobs(NULL::jobs, 'c', 10,
			done => ARRAY(SELECT id FROM jobs WHERE sid = 'c' AND status = '2'))");
	}
	my $later = buffers();
	note("$name: $first buffers at first, $later later, of " . $A->one(
			"SELECT (pg_table_size('jobs') + pg_indexes_size('jobs')) / 8192"));
	cmp_ok($later, '<', $first + 60, "$name: a claim does not walk over them");
	is($A->one("SELECT id FROM claim_jobs(NULL::jobs, 'a', 1, done => ARRAY[1])"),
		2, "$name: the next one of that key");
	$old->query('COMMIT');
}
$node->stop;
done_testing();
