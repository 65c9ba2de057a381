# Programs of examples/ under test: real ones, with real drivers.
#
# script/test installs what they need.  Where that is missing in somebody's
# "make installcheck", their part is skipped.

package ClientTest;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

our @EXPORT = qw(examples client_server start printed ended there_is held
  make_jobs until_busy try_workers with_options python node_js java jdbc_url
  built);

my ($logs, $watch);
my $jobs = 400;

# The folder of the programs.
sub examples { return "$FindBin::RealBin/../../examples"; }

# A server for clients that read the environment, which most do, or speak TCP
# only, as JDBC's does; and a session to watch them.
sub client_server
{
	my ($name) = @_;
	my $node = new_server($name,
		conf => "max_connections = 50\nlisten_addresses = '127.0.0.1'\n");

	$logs = PostgreSQL::Test::Utils::tempdir();
	$watch = session($node);
	$ENV{PGHOST} = $node->host;
	$ENV{PGPORT} = $node->port;
	$ENV{PGDATABASE} = 'postgres';
	$ENV{PGUSER} = $watch->one('SELECT current_user');
	return ($node, $watch);
}

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

# The command of a worker that has options.
sub with_options
{
	my @command = @_;
	return sub { return (@command, '--sid', $_[0], '--ttl', $_[1]) };
}

# Several workers that one command starts (code, from a sid and a ttl), and
# that end so when told to.
sub try_workers
{
	my ($name, $exit, $command) = @_;

	make_jobs();
	# Only those that are to lapse do so, however busy this machine is.
	my ($victim, $late, $stopped, $cut, $other) = map {
		start("$name-$_", $command->("$name-$_", $_ eq 'late' ? 2 : 120))
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
	is(ended($stopped), $exit, 'and ends when it is told to');
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
	is(ended($_), $exit, "$_->{sid} ends") for $late, $cut, $other;
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

# How to start a program in each language; nothing where that is not there.
sub python
{
	my $python = $ENV{PYTHON} || '/usr/bin/python3';

	there_is("psycopg2 for Python, as in Debian's package python3-psycopg2",
		$python, '-c', 'import psycopg2')
	  or return;
	return ($python, '-B');
}

sub node_js
{
	my $examples = examples();

	there_is('node and its package pg: "npm install" in the folder examples',
		'node', '-e', "module.paths.push('$examples/node_modules'); require('pg')")
	  or return;
	return 'node';
}

# The options have a small program start sooner.
sub java
{
	my $driver = $ENV{JDBC} // '/usr/share/java/postgresql.jar';

	there_is("a JDK, as in Debian's package default-jdk-headless",
		'javac', '-version')
	  or return;
	there_is("the driver, as in Debian's package libpostgresql-jdbc-java",
		'test', '-e', $driver)
	  or return;
	return ('java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp',
		$driver);
}

# The address of the server for JDBC.
sub jdbc_url
{
	return "jdbc:postgresql://127.0.0.1:$ENV{PGPORT}/$ENV{PGDATABASE}"
	  . "?user=$ENV{PGUSER}";
}

# A program in C, built; its name.
sub built
{
	my ($name) = @_;
	my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
	my ($include, $lib) =
	  map { `$pg_config $_` =~ s/\n//r } '--includedir', '--libdir';

	there_is("cc, and libpq's headers, as in Debian's package libpq-dev",
		'cc', qw(-Wall -Wextra -Werror -o), "$logs/$name",
		examples() . "/$name.c", "-I$include", "-L$lib", qw(-lpq -pthread))
	  or return;
	return "$logs/$name";
}

1;
