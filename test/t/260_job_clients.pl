# The workers of examples/, as real programs with real drivers.  Of each sort
# several work on one table; one is killed, one stands still for too long, one
# is told to stop, one loses its connections.  In the end each job was done
# once, but for those that lapsed in the hands of the first two.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use ClientTest;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $examples = examples();
my ($node, $watch) = client_server('clients');

subtest 'Python' => sub {
	my @python = python() or return;
	try_workers('py', 0, with_options(@python, "$examples/worker.py"));
};

subtest 'JavaScript' => sub {
	my @node = node_js() or return;
	try_workers('js', 0, with_options(@node, "$examples/worker.js"));
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
