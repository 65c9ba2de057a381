# Two processes that use one sid hand each other's jobs out again.  The second
# is warned, once in the life of the lease; a worker that has come back, after
# its client or its session ended, is not.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $node = new_server('shared_sid');
my ($A, $B, $watch) = map { session($node) } 1 .. 3;

$watch->query("CREATE TABLE jobs (id bigint PRIMARY KEY,
	status text DEFAULT '0', sid text)");
$watch->query('INSERT INTO jobs SELECT generate_series(1, 1000)');

# One test: does this claim hand out so many rows, and is it warned?
sub claims
{
	my ($client, $sid, $n, $more, $warned, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $res = $client->query("SELECT id FROM claim_jobs(NULL::jobs, '$sid', 3"
		  . ($more ? ", $more)" : ')'));

	return is_deeply(
		[ scalar @{ $res->{rows} }, @{ $res->{notices} } ],
		[
			$n,
			$warned
			? 'WARNING: two processes seem to share sid "'
			  . $sid
			  . '" of job table "jobs"'
			: ()
		],
		$name);
}

claims($A, 'w1', 3, undef, 0, 'new jobs');
claims($A, 'w1', 3, undef, 0, 'the same session gets its own again');
claims($B, 'w1', 3, undef, 1, 'another session gets them, too');
claims($B, 'w1', 3, undef, 0, 'which is said once');
claims($A, 'w1', 3, undef, 0, 'in this lease');

# Not what is new, nor what is not handed out again.
claims($A, 'w2', 3, undef, 0, 'jobs of another sid');
claims($B, 'w2', 3, 'resume => false', 0, 'more of them for another session');
claims($B, 'w3', 3, undef, 0, 'jobs');
my $ids = join ',',
  map { $_->[0] } $B->rows("SELECT id FROM jobs WHERE sid = 'w3'");
claims($A, 'w3', 3, "done => ARRAY[$ids]",
	0, 'jobs that another session has done');

# A lease that lapsed is over: the next one is told again.
claims($A, 'w4', 3, "ttl => '0.5 s'", 0, 'a short lease');
claims($B, 'w4', 3, undef, 1, 'is shared');
sub lapsed
{
	my ($sid) = @_;
	return until_true(
		sub {
			$watch->one("SELECT live FROM job_workers WHERE sid = '$sid'") eq
			  'f';
		});
}
ok(lapsed('w4'), 'it lapses');
claims($A, 'w4', 3, undef, 0, 'its jobs go to a worker that counts as new');
claims($B, 'w4', 3, "ttl => '1 h'", 1, 'the new lease is shared');

# A claim that is rolled back has handed out nothing.
claims($A, 'w5', 3, undef, 0, 'jobs');
$B->query('BEGIN');
claims($B, 'w5', 3, 'resume => false', 0, 'more of them');
$B->query('ROLLBACK');
claims($A, 'w5', 3, undef, 0, 'are not there any more');

# A worker that comes back: its session has ended, or is about to.
my $gone = session($node);
claims($gone, 'w6', 3, undef, 0, 'jobs');
$gone->drop;
claims($A, 'w6', 3, undef, 0, 'a new session after a client that died');
$gone = session($node);
claims($gone, 'w7', 3, undef, 0, 'jobs');
kill_session($watch, $gone);
claims($A, 'w7', 3, undef, 0, 'a new session after one that was killed');

# Behind a pooler sessions tell nothing.
claims($A, 'w8', 3, undef, 0, 'jobs');
$B->query('SET tokenlock.session_tokens = off');
claims($B, 'w8', 3, undef, 0, 'with tokenlock.session_tokens off');
$B->query('RESET tokenlock.session_tokens');
claims($A, 'w8', 3, undef, 1, 'and on again');

# The other process is named to those who may know of it.
my $details = sub
{
	my ($role, $sid) = @_;
	my $pid = $A->pid;
	my ($out, $err);

	claims($A, $sid, 3, undef, 0, "jobs of $sid");
	$node->psql('postgres',
		"SET ROLE $role; SELECT FROM claim_jobs(NULL::jobs, '$sid', 3)",
		stderr => \$err);
	return $err =~ /while process $pid,/ ? 'pid'
	  : $err =~ /while another session,/ ? 'no pid'
	  :                                    $err;
};
$watch->query('CREATE ROLE worker');
$watch->query('GRANT SELECT, UPDATE ON jobs TO worker');
is($details->('worker', 'w9'), 'no pid', 'another role');
$watch->query('GRANT pg_read_all_stats TO worker');
is($details->('worker', 'w10'), 'pid', 'a role that sees all');

$node->stop;
done_testing();
