# The workers of examples/, as real programs with real drivers.  Of each sort
# several work on one table; one is killed, one stands still for too long, one is
# told to stop, one loses its connections.  In the end each job was done once,
# but for those that lapsed in the hands of the first two.
#
# script/test installs what they need.  Where that is missing in somebody's
# "make installcheck", their part is skipped.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use TokenlockTest;

my $examples = "$FindBin::RealBin/../../examples";
my $logs = PostgreSQL::Test::Utils::tempdir();
my $node = new_server('clients', conf => "max_connections = 50\n");
my $watch = session($node);
my $jobs = 400;

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
$ENV{PGUSER} = $watch->one('SELECT current_user');

sub make_jobs
{
	$watch->query('SET client_min_messages = warning');
	$watch->query('DROP TABLE IF EXISTS jobs CASCADE');
	$watch->query("CREATE TABLE jobs (id bigint PRIMARY KEY, task text,
		status text DEFAULT '0', sid text, attempts int, error text)");
	$watch->query("INSERT INTO jobs SELECT i, CASE i WHEN 7 THEN 'fail'
		ELSE 'task ' || i END FROM generate_series(1, $jobs) i");
	$watch->query("SELECT job_table_set('jobs', attempts_column => 'attempts',
		max_attempts => 6, error_column => 'error')");
	return;
}

# A program, running; what it prints goes to files.
sub start
{
	my ($sid, @command) = @_;
	my $files = "$logs/$sid";
	my $handle = IPC::Run::start(\@command, '<', '/dev/null', '>>',
		"$files.out", '2>>', "$files.err");

	return { sid => $sid, handle => $handle, pid => $handle->{KIDS}[0]{PID} };
}

sub printed
{
	my ($worker, $what) = @_;
	return slurp_file("$logs/$worker->{sid}.$what");
}

# The ids of the jobs that it has done.
sub did { return split /\n/, printed($_[0], 'out'); }

# Waits for the end of a program, and returns its exit code, or its signal
# with a minus sign.
sub ended
{
	my ($worker) = @_;

	eval { IPC::Run::finish($worker->{handle}) };
	my $status = $worker->{handle}->full_result(0);
	return $status & 127 ? -($status & 127) : $status >> 8;
}

sub held
{
	my ($worker) = @_;
	return $watch->one("SELECT count(*) FROM jobs
		WHERE status = '2' AND sid = '$worker->{sid}'");
}

# Waits for something while there is always work to do.
sub until_busy
{
	my ($code) = @_;
	return until_true(
		sub {
			$watch->query("INSERT INTO jobs
				SELECT max(id) + i, 'more' FROM jobs, generate_series(1, 50) i
				WHERE (SELECT count(*) FROM jobs WHERE status = '0') < 100
				GROUP BY i");
			return $code->();
		},
		120);
}

# Lets a worker stand still with jobs in its hands, and returns their ids.
sub freeze
{
	my ($worker) = @_;
	return until_busy(
		sub {
			return 0 if !did($worker) || !held($worker);
			kill STOP => $worker->{pid};
			# a call that is under way comes to its end without it
			until_true(
				sub {
					$watch->one("SELECT count(*) = 0 FROM pg_stat_activity
						WHERE application_name LIKE '$worker->{sid}%'
						AND state <> 'idle'") eq 't';
				});
			my $ids = [ map { $_->[0] } $watch->rows("SELECT id FROM jobs
				WHERE status = '2' AND sid = '$worker->{sid}'") ];
			return $ids if @{$ids};
			kill CONT => $worker->{pid};
			return 0;
		});
}

sub all_done
{
	return until_true(
		sub {
			$watch->one("SELECT count(*) = 0 FROM jobs
				WHERE status IN ('0', '2')") eq 't';
		},
		180);
}

# The jobs that were not done once, as text.  Those of workers that lapsed may
# have been done again.
sub miscounted
{
	my ($again, @workers) = @_;
	my (%times, %again);
	my @wrong;

	$times{$_}++ for map { did($_) } @workers;
	$again{$_} = 1 for @{$again};
	for my $id (1 .. $watch->one('SELECT max(id) FROM jobs'))
	{
		my $n = $times{$id} // 0;

		push @wrong, "$id: $n times"
		  unless $id == 7 ? $n == 0 : $n == 1 || $n > 1 && $again{$id};
	}
	return join ', ', @wrong;
}

# Several workers that one command starts.
sub try_workers
{
	my ($name, @command) = @_;

	make_jobs();
	# Only those that are to lapse do so, however busy this machine is.
	my ($victim, $late, $stopped, $cut, $other) = map {
		start("$name-$_", @command, '--sid', "$name-$_", '--ttl',
			$_ eq 'late' ? 2 : 120)
	} qw(victim late stopped cut other);

	my $again = freeze($victim);
	ok($again, 'one stands still with jobs in its hands');
	kill KILL => $victim->{pid};
	is(ended($victim), -9, 'and is killed');
	$watch->query("SELECT renew_jobs('jobs', '$victim->{sid}', ttl => '1 ms')");
	ok(until_busy(sub { !held($victim) }), 'others have its jobs');

	ok(freeze($late), 'one stands still for longer than its lease');
	ok(until_busy(sub { !held($late) }), 'others have its jobs, too');
	kill CONT => $late->{pid};
	ok( until_busy(
			sub { printed($late, 'err') =~ /too slow: \d+ of \d+ jobs/ }),
		'it comes to know');
	my $before = () = did($late);
	ok(until_busy(sub { (() = did($late)) > $before }), 'and goes on');

	ok(until_busy(sub { did($stopped) }), 'one is at work');
	kill TERM => $stopped->{pid};
	is(ended($stopped), 0, 'and ends when it is told to');
	is(held($stopped), 0, 'without a job in its hands');
	like(
		printed($stopped, 'err'),
		qr/stopped: \d+ finished, \d+ given back/,
		'which it says');

	ok(until_busy(sub { did($cut) }), 'one is at work');
	$before = () = did($cut);
	cmp_ok(
		$watch->one("SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
			FROM pg_stat_activity WHERE application_name LIKE '$cut->{sid}%'"),
		'>=', 1, 'and loses its connections');
	ok( until_busy(
			sub {
				printed($cut, 'err') =~ /trying again/
				  && (() = did($cut)) > $before;
			}),
		'and goes on');

	ok(all_done(), 'all jobs come to an end');
	kill TERM => $_->{pid} for $late, $cut, $other;
	is(ended($_), 0, "$_->{sid} ends") for $late, $cut, $other;
	is( miscounted([ @{$again}, did($late) ],
			$victim, $late, $stopped, $cut, $other),
		'', 'each job was done once');
	is( $watch->one("SELECT string_agg(id || ' ' || attempts, ',')
			FROM jobs WHERE status = '3'"),
		'7 6', 'but for one that failed six times');
	return;
}

# Is this there?  If not, the test fails where script/test runs it.
sub there_is
{
	my ($what, @command) = @_;
	my $printed;

	return 1
	  if eval { IPC::Run::run(\@command, '>', \$printed, '2>&1') };
	diag($printed // $@);
	fail("needs $what") if $ENV{TOKENLOCK_TEST_CLIENTS};
	plan skip_all => "needs $what" unless $ENV{TOKENLOCK_TEST_CLIENTS};
	return 0;
}

my $python = $ENV{PYTHON} || '/usr/bin/python3';
subtest 'Python' => sub {
	there_is('psycopg2 for Python, as in Debian\'s package python3-psycopg2',
		$python, '-c', 'import psycopg2')
	  or return;
	try_workers('py', $python, '-B', "$examples/worker.py");
};

subtest 'JavaScript' => sub {
	there_is('node and its package pg: "npm install" in the folder examples',
		'node', '-e', "module.paths.push('$examples/node_modules'); require('pg')")
	  or return;
	try_workers('js', 'node', "$examples/worker.js");
};

subtest 'SQL' => sub {
	make_jobs();
	$watch->query('DROP TABLE IF EXISTS job_results');
	$node->safe_psql('postgres', slurp_file("$examples/worker.sql"));
	$watch->query("CREATE OR REPLACE PROCEDURE work_on_job(job jobs)
		LANGUAGE plpgsql AS \$\$
		BEGIN
			IF job.task = 'fail' THEN
				RAISE 'this one never works';
			END IF;
			INSERT INTO job_results VALUES (job.id, job.sid, upper(job.task));
			PERFORM pg_sleep(0.02);
		END \$\$");
	my $call = sub {
		my ($sid, $ttl) = @_;
		return start(
			$sid, 'psql', '-XAtq', '-d',
			"application_name=$sid", '-c',
			"CALL work_on_jobs('$sid', ttl => '$ttl', patience => '1 s')");
	};
	my $did = sub {
		return $watch->one(
			"SELECT count(*) FROM job_results WHERE worker = '$_[0]{sid}'");
	};
	my $end = sub {
		my ($worker, $how) = @_;
		ok(until_busy(sub { $did->($worker) > 0 && held($worker) > 0 }),
			"$worker->{sid} is at work");
		$watch->query("SELECT $how(pid) FROM pg_stat_activity
			WHERE application_name = '$worker->{sid}'");
		isnt(ended($worker), 0, 'and is stopped');
	};
	my ($killed, $stopped, $other) =
	  ($call->('killed', '2 s'), map { $call->($_, '2 min') } qw(stopped other));

	$end->($killed, 'pg_terminate_backend');
	$end->($stopped, 'pg_cancel_backend');
	$stopped = $call->('stopped', '2 min');
	is(ended($_), 0, "$_->{sid} ends when there is nothing to do")
	  for $stopped, $other;
	ok( until_true(
			sub {
				ended($call->('late', '2 min')) == 0 && $watch->one(
					"SELECT count(*) = 0 FROM jobs WHERE status IN ('0', '2')"
				) eq 't';
			}),
		'another one takes the rest');
	is( $watch->one("SELECT count(*) - count(DISTINCT job) || ' ' ||
			(SELECT count(*) FROM jobs) - count(*) FROM job_results"),
		'0 1',
		'the work of each job is there, once');
	is( $watch->one("SELECT string_agg(id || ' ' || attempts, ',')
			FROM jobs WHERE status <> '1'"),
		'7 6', 'but for one that failed');
};

$node->stop;
done_testing();
