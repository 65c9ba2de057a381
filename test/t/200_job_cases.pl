# Workers that die, are slow, come back, or that nobody knows.  P25, P42, P87,
# P88, P90, P92, P98, P103; a standby; prepared transactions.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('jobs',
	init => { allows_streaming => 1 },
	conf => "max_prepared_transactions = 5\nmax_connections = 50\n"
	  . "autovacuum = off\n");
my ($A, $B, $C) = map { session($node) } 1 .. 3;

sub make_jobs
{
	my ($n) = @_;
	$A->query('DROP TABLE IF EXISTS jobs');
	$A->query("CREATE TABLE jobs (id bigint PRIMARY KEY,
		status text DEFAULT '0', sid text)");
	$A->query("INSERT INTO jobs SELECT generate_series(1, $n)");
	return;
}

# The ids that a claim answers, as a list; the time at which it was sent.
sub claim
{
	my ($client, $sid, $batch, $more) = @_;
	$more = defined $more ? ", $more" : '';
	return join ',', map { $_->[0] } $client->rows(
		"SELECT id FROM claim_jobs(NULL::jobs, '$sid', $batch$more)");
}

sub claims
{
	my ($client, $sid, $batch, $more, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(claim($client, $sid, $batch, $more), $expected, $name);
}

# P87: the worker dies, its rows do not stay
make_jobs(30);
my $dying = session($node);
my $sent = time;
claims($dying, 'w1', 5, "ttl => '1.5 s'", '1,2,3,4,5', 'P87: w1 claims');
kill_session($A, $dying);
claims($B, 'w2', 5, undef, '6,7,8,9,10', 'P87: others get other rows');
my (@early, $got, $at);
until_true(
	sub {
		$C->query('BEGIN');
		$at = time;
		$got = claim($C, 'w3', 5);
		push @early, $got if time < $sent + 1.5;
		$C->query('ROLLBACK');
		return $got eq '1,2,3,4,5';
	});
is(scalar(grep { $_ ne '11,12,13,14,15' } @early),
	0, 'P87: only ready rows before the ttl is over');
is($got, '1,2,3,4,5', 'P87: then all of its rows, before ready ones');
between($at - $sent, 1.5, 'P87: soon after', 0.5);
claims($C, 'w3', 7, undef, '1,2,3,4,5,11,12', 'P87: and for good');

# A session that ends in the middle of its claim gives the rows back.
make_jobs(10);
$dying = session($node);
$dying->query('BEGIN');
claims($dying, 'w1', 3, undef, '1,2,3', 'an open claim');
claims($B, 'w2', 2, undef, '4,5', 'others leave its rows out');
kill_session($A, $dying);
claims($B, 'w3', 4, undef, '1,2,3,6', 'killed: its rows are ready at once');
$dying = session($node);
$dying->query('BEGIN');
claims($dying, 'w4', 2, undef, '7,8', 'another');
my $pid = $dying->pid;
$dying->drop;
until_gone($A, $pid);
claims($B, 'w5', 9, undef, '7,8,9,10', 'its client gone: the same');

# P88: long jobs are not dead jobs
make_jobs(5);
claims($A, 'w1', 5, "ttl => '700 ms'", '1,2,3,4,5', 'P88: w1 claims all');
my ($renewed, $stolen, $slow) = (1, '', 0);
for (my $end = time + 2.5; time < $end;)
{
	my $before = time;
	my $answer = $A->one("SELECT renew_jobs('jobs', 'w1')");
	$stolen .= claim($B, 'w2', 5);
	$renewed &&= $answer eq 't';
	sleep 0.1;
	$slow = 1 if time - $before > 0.6;
}
SKIP:
{
	skip 'the machine stood still for longer than the ttl', 3 if $slow;
	ok($renewed, 'P88: each heartbeat is answered true');
	is($stolen, '', 'P88: nobody else gets a row');
	answers($A, "finish_jobs('jobs', 'w1', ARRAY[1,2,3,4,5])", '5',
		'P88: and it can finish');
}

# P98: a missed heartbeat is no death
make_jobs(7);
claims($A, 'w1', 5, "ttl => '20 s'", '1,2,3,4,5', 'P98: w1 claims');
my $heart = session($node);
kill_session($A, $heart);
$heart = session($node);
answers($heart, "renew_jobs('jobs', 'w1')", 't',
	'P98: renewed from a new connection');
claims($B, 'w2', 5, undef, '6,7', 'P98: its rows stay its own');

# P92: many heirs
make_jobs(1000);
my @heirs = map { session($node) } 1 .. 8;
is(scalar(split /,/, claim($A, 'w0', 1000, "ttl => '300 ms'")),
	1000, 'P92: w0 has them all');
until_true(
	sub {
		$A->one("SELECT live FROM job_workers WHERE sid = 'w0'
			AND job_table = 'jobs'::regclass") eq 'f';
	});
my (%times, @last);
my @busy = keys @heirs;
while (@busy)
{
	for my $i (@busy)
	{
		my $done = join ',', @{ $last[$i] // [] };
		$heirs[$i]->send("SELECT id FROM claim_jobs(NULL::jobs, 'h$i', 50,
			done => '{$done}'::bigint[])");
	}
	my @still;
	for my $i (@busy)
	{
		my $res = $heirs[$i]->result;
		die $res->{error} if $res->{error};
		$last[$i] = [ map { $_->[0] } @{ $res->{rows} } ];
		$times{$_}++ for @{ $last[$i] };
		push @still, $i if @{ $last[$i] };
	}
	@busy = @still;
}
is(scalar(keys %times), 1000, 'P92: all rows are inherited');
is(max(values %times), 1, 'P92: each by one');
is($A->one("SELECT count(*) FROM jobs WHERE status = '1'"),
	1000, 'P92: and done');
is($A->one("SELECT count(*) FROM job_workers
	WHERE claimed > 0 AND job_table = 'jobs'::regclass"),
	0, 'P92: nobody holds any');
$_->quit for @heirs;

# P90: after a crash nobody knows the worker
make_jobs(12);
$node->safe_psql('postgres',
	"ALTER SYSTEM SET tokenlock.job_ttl = '1.5 s'; SELECT pg_reload_conf()");
claims(session($node), 'w1', 3, "ttl => '1 h'", '1,2,3', 'P90: w1 claims');
$node->stop('immediate');
$node->start;
($A, $B, $C) = map { session($node) } 1 .. 3;
claims($B, 'w2', 3, undef, '4,5,6', 'P90: others go on');
claims($C, 'w1', 2, undef, '1,2', 'P90: w1 itself would find its rows');
my $back = session($node);
claims($back, 'w1', 3, undef, '1,2,3', 'P90: all of them');
make_jobs(12);
claims($C, 'w1', 3, undef, '1,2,3', 'P90: once more');
$node->stop('immediate');
$node->start;
($A, $B, $C) = map { session($node) } 1 .. 3;
my $first = time;
my %got;
until_true(
	sub {
		my $ids = claim($B, 'w2', 3, "done => (SELECT array_agg(id)
			FROM jobs WHERE sid = 'w2' AND status = '2')");
		$at = time;
		$got{$_} //= $at - $first for split /,/, $ids;
		return exists $got{3};
	});
is(join(',', sort { $a <=> $b } keys %got),
	'1,2,3,4,5,6,7,8,9,10,11,12', 'P90: all are handed out');
cmp_ok($got{12}, '<', 1.4, 'P90: ready ones at once');
cmp_ok($got{$_}, '>=', 1.5, "P90: $_ of the unknown worker after its ttl")
  for 1 .. 3;
cmp_ok($got{3}, '<', 3.5, 'P90: and not much later');

# No crash: a sid that somebody wrote by hand.
$A->query("INSERT INTO jobs VALUES (50, '2', 'ghost')");
$first = time;
is(claim($B, 'w2', 3, "done => (SELECT array_agg(id) FROM jobs
	WHERE sid = 'w2' AND status = '2')"),
	'', 'P90: the ghost is met');
is($A->one("SELECT claimed FROM job_workers WHERE sid = 'ghost'"),
	1, 'P90: and is a worker then');
until_true(sub { claim($B, 'w2', 3) eq '50' });
between(time - $first, 1.5, 'P90: its row after one ttl', 1);

# P103: no state in between
make_jobs(400);
my %alive;
srand 42;
for my $n (1 .. 40)
{
	my $c = session($node);
	my $sid = "s$n";
	my $last = '';
	for my $round (1 .. 1 + int rand 4)
	{
		$last = claim($c, $sid, 3, "ttl => '1 s', done => '{$last}'::bigint[]");
	}
	if (rand() < 0.5)
	{
		$c->send("SELECT count(*) FROM claim_jobs(NULL::jobs, '$sid', 3,
			done => '{$last}'::bigint[])");
		$c->drop;
	}
	else
	{
		$A->one('SELECT pg_terminate_backend(' . $c->pid . ')');
	}
}
is( $A->one(
		"SELECT count(*) FROM jobs j WHERE status NOT IN ('0', '1')
		 AND NOT (status = '2' AND sid IN (SELECT sid FROM job_workers))"),
	0, 'P103: each row is ready, done or somebody\'s');
until_true(
	sub {
		claim($B, 'z', 50, "done => (SELECT array_agg(id) FROM jobs
			WHERE sid = 'z' AND status = '2')");
		return $A->one("SELECT count(*) FROM jobs WHERE status <> '1'") == 0;
	},
	10);
is($A->one("SELECT count(*) FROM jobs WHERE status <> '1'"),
	0, 'P103: a new worker gets all that is not done');
$node->safe_psql('postgres',
	"ALTER SYSTEM RESET tokenlock.job_ttl; SELECT pg_reload_conf()");

# P25: the application's advisory locks are no obstacle
make_jobs(5);
$A->query("SELECT pg_advisory_lock(k), pg_advisory_lock(77, k)
	FROM generate_series(0, 300) k");
claims($B, 'w1', 3, undef, '1,2,3', 'P25: claims beside advisory locks');
$A->query('SELECT pg_advisory_unlock_all()');

# A prepared claim keeps its rows; when it is rolled back, they are found.
$A->query('BEGIN');
claims($A, 'w9', 1, undef, '4', 'a claim to be prepared');
$A->query("PREPARE TRANSACTION 'tl'");
claims($C, 'w8', 2, undef, '5', 'its row is not handed out');
$A->query("ROLLBACK PREPARED 'tl'");
ok(until_true(sub { claim($C, 'w8', 2) eq '4,5'; }, 10),
	'rolled back, it is found again');

# A standby answers with an error, and shows no workers of its own.
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
my $S = session($standby);
for my $sql (
	"SELECT * FROM claim_jobs(NULL::jobs, 'w')",
	"SELECT finish_jobs('jobs', 'w', ARRAY[1])",
	"SELECT release_jobs('jobs', 'w')",
	"SELECT release_jobs('jobs', 'w', ARRAY[1])",
	"SELECT renew_jobs('jobs', 'w')")
{
	my $e = $S->fails($sql);
	is($e->code, '55000', "on a standby: $sql");
	like($e->message, qr/recovery/, 'says why');
}
is($S->one('SELECT count(*) FROM job_workers'), '0', 'the view can be read');
$S->quit;
$standby->stop;

# P42: not preloaded
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
my $N = session($node);
for my $sql (
	"SELECT * FROM claim_jobs(NULL::jobs, 'w')",
	"SELECT finish_jobs('jobs', 'w', ARRAY[1])",
	"SELECT release_jobs('jobs', 'w')",
	"SELECT release_jobs('jobs', 'w', ARRAY[1])",
	"SELECT renew_jobs('jobs', 'w')",
	"SELECT * FROM job_workers")
{
	my $e = $N->fails($sql);
	is($e->code, '55000', "P42: not preloaded: $sql");
	like($e->hint, qr/shared_preload_libraries/, 'P42: its hint');
}
is($N->one('SELECT 1'), '1', 'P42: the session goes on');

done_testing();
