# Where claimers start: an old snapshot does not make them walk over all that
# was done, and yet whatever becomes ready behind them is found.  P74
#
# How fast they are is measured in bench/.  Here buffers are counted, which do
# not depend on the machine.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $rows = full_run() ? 200_000 : 30_000;
my $node = new_server('position',
	conf => "shared_buffers = 32MB\nautovacuum = off\n"
	  . "synchronous_commit = off\ntrack_functions = none\n");
my ($A, $B, $old) = map { session($node) } 1 .. 3;

sub ids
{
	my ($client, $sql) = @_;
	return join ',', map { $_->[0] } $client->rows($sql);
}

# Buffers that a statement touches, in its executor.
sub buffers
{
	my ($client, $sql) = @_;
	my $plan = join "\n", map { $_->[0] }
	  $client->rows("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) $sql");
	my ($hit) = $plan =~ /shared hit=(\d+)/;
	my ($read) = $plan =~ /read=(\d+)/;
	return ($hit // 0) + ($read // 0);
}

# Claim and finish until so many are done; returns the last ids.
my $last = '';

sub work
{
	my ($n, $batch) = @_;
	for (1 .. $n / $batch)
	{
		$last = ids($A, "SELECT id FROM claim_jobs(NULL::jobs, 'a', $batch,
			done => '{$last}'::bigint[])");
	}
	return;
}

for my $index ('', 'CREATE INDEX ON jobs (status, id)')
{
	my $with = $index ? 'with an index on status' : 'with the key only';

	$A->query('DROP TABLE IF EXISTS jobs');
	$A->query("CREATE TABLE jobs (id bigint PRIMARY KEY,
		status text DEFAULT '0', sid text, note text DEFAULT 'some text')");
	$A->query($index) if $index;
	$A->query("INSERT INTO jobs SELECT i FROM generate_series(1, $rows) i");
	$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$old->query('SELECT 1 FROM jobs LIMIT 1');
	$last = '';

	# Each claim looks behind a little, so take the least of several.
	my $claim = "SELECT id FROM claim_jobs(NULL::jobs, 'b', 1, resume => false)";
	work(1000, 100);
	my ($first) = sort { $a <=> $b } map { buffers($B, $claim) } 1 .. 5;
	work($rows / 2, 500);
	my ($later) = sort { $a <=> $b } map { buffers($B, $claim) } 1 .. 5;
	my $select = buffers($B, "SELECT id FROM jobs WHERE status = '0'
		ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED");
	note("$with: $first buffers at first, $later later; $select from the start");
	cmp_ok($later, '<', $first + 30, "$with: a claim touches no more than at first");
	cmp_ok($select, '>', 5 * $later, "$with: unlike a look from the start");

	# Newer rows keep coming while these are looked for.
	for my $case (
		[ 'sorts before all', -1, "INSERT INTO jobs VALUES (-1)" ],
		[ 'set back by hand', 700, "UPDATE jobs SET status = '0' WHERE id = 700" ],
		[ 'the same row again', 700, "UPDATE jobs SET status = '0', sid = NULL
			WHERE id = 700" ])
	{
		my ($name, $id, $sql) = @{$case};
		until_true(
			sub {
				work(50, 10);
				return $A->one("SELECT count(*) FROM jobs WHERE status = '0'
					AND id = $id") == 0;
			});
		$B->query($sql);
		my $at = time;
		my $done = 0;
		ok( until_true(
				sub {
					work(10, 10);
					$done += 10;
					return ",$last," =~ /,$id,/ || $done > $rows / 8;
				})
			  && $done <= $rows / 8,
			"$with: $name: found while newer rows are being claimed");
		note(sprintf 'after %.2f s and %d others', time - $at, $done);
	}

	# A smaller id that was committed late.
	$B->query('BEGIN');
	$B->query('INSERT INTO jobs VALUES (-2)');
	work(100, 10);
	$A->query("SELECT release_jobs('jobs', 'none')");
	sleep 1.1;
	work(100, 10);
	$B->query('COMMIT');
	ok(until_true(sub { work(10, 10); return ",$last," =~ /,-2,/; }, 20),
		"$with: committed late: found");
	$old->query('COMMIT');
	$A->query("SELECT release_jobs('jobs', 'a')");
	$last = '';
}

# Nothing else to do: what is set back is found by the next claims, in a table
# of many pages, too.
$B->query("UPDATE jobs SET status = '1'");
is(ids($A, "SELECT id FROM claim_jobs(NULL::jobs, 'c', 5)"), '', 'all is done');
$B->query("UPDATE jobs SET status = '0', sid = NULL WHERE id IN (5, 20000)");
my %found;
ok( until_true(
		sub {
			$found{$_} = 1 for split /,/,
			  ids($A, "SELECT id FROM claim_jobs(NULL::jobs, 'c', 5)");
			return keys %found == 2;
		},
		10),
	'an idle queue finds what is set back');
is(join(',', sort { $a <=> $b } keys %found), '5,20000', 'these rows');

# More islands than are kept: rolled-back claims one after the other.
$B->query("UPDATE jobs SET status = '0', sid = NULL WHERE id <= 100");
$A->query("SELECT release_jobs('jobs', 'c')");
my $ready = $A->one("SELECT count(*) FROM jobs WHERE status = '0'");
for my $i (1 .. 30)
{
	$B->query('BEGIN');
	$B->query("SELECT id FROM claim_jobs(NULL::jobs, 'd', 2)");
	$B->query($i % 3 ? 'ROLLBACK' : 'COMMIT');
	$B->query("SELECT release_jobs('jobs', 'd')") if $i % 6 == 0;
}
$B->query("SELECT release_jobs('jobs', 'd')");
%found = ();
until_true(
	sub {
		$found{$_} = 1 for split /,/,
		  ids($A, "SELECT id FROM claim_jobs(NULL::jobs, 'e', 200)");
		return keys %found >= $ready;
	},
	10);
is(scalar(keys %found), $ready, 'no row is lost between islands');

done_testing();
