# What the TAP tests of tokenlock share: servers that preload it, sessions on
# them, waiting for something to come true instead of for some time, and
# processes that run beside the test.

package TokenlockTest;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use List::Util qw(max);
use PgClient;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(new_server session until_true until_asleep until_gone
  settled kill_session full_run answers waits between in_child fatal
  children_did_well busy);

# The switch of "script/test --full": longer runs, larger numbers.
sub full_run { return !!$ENV{TOKENLOCK_TEST_FULL}; }

# A server that preloads tokenlock, started, with the extension in "postgres".
sub new_server
{
	my ($name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%{ $opt{init} || {} });
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'tokenlock'\n" . ($opt{conf} || ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock')
	  unless $opt{bare};
	return $node;
}

# A session on a server; the options are those of PgClient->new.
sub session
{
	my ($node, %opt) = @_;
	return PgClient->new(host => $node->host, port => $node->port, %opt);
}

# Looks again and again until the code answers true; false after a limit that
# is there for broken servers only.
sub until_true
{
	my ($code, $limit) = @_;
	my $end = time + ($limit || 60);

	while (1)
	{
		my $answer = $code->();
		return $answer if $answer;
		return $answer if time > $end;
		sleep 0.005;
	}
}

# Waits until these sessions are registered as waiters and sleep.
sub until_asleep
{
	my ($watch, @clients) = @_;
	my $pids = join ',', map { $_->pid } @clients;
	my $n = @clients;

	return until_true(
		sub {
			$watch->one(
				"SELECT count(*) = $n FROM token_waiters w
				 JOIN pg_stat_activity a USING (pid)
				 WHERE pid IN ($pids) AND a.wait_event IS NOT NULL") eq 't';
		});
}

# Waits until no server process has one of these numbers.
sub until_gone
{
	my ($watch, @pids) = @_;
	my $pids = join ',', @pids;

	return until_true(
		sub {
			$watch->one("SELECT count(*) = 0 FROM pg_stat_activity
				WHERE pid IN ($pids)") eq 't';
		});
}

# A session that has stopped waiting and is ready for the next call, or not:
# gives it the time that a wake-up may take on a busy machine.
sub settled
{
	my ($client, $limit) = @_;
	return $client->done($limit // 10);
}

# Ends a session by pg_terminate_backend and waits until it is gone.
sub kill_session
{
	my ($watch, $client) = @_;
	my $pid = $client->pid;

	$watch->one("SELECT pg_terminate_backend($pid)");
	until_gone($watch, $pid);
	return;
}

# One test: the answer of a call.
sub answers
{
	my ($client, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $res = $client->send("SELECT $sql")->result;

	return is($res->{error} ? "$res->{error}" : $res->{rows}[0][0],
		$expected, $name // $sql);
}

# Sends a call that is to wait, and returns once it sleeps in line.
sub waits
{
	my ($watch, $client, $sql) = @_;

	$client->send("SELECT $sql");
	until_asleep($watch, $client)
	  or diag("does not wait: $sql");
	return $client;
}

# How many times longer things may take here and now than on a machine that has
# nothing else to do: the processes that want to run, by processor.
sub busy
{
	return 1 unless -r '/proc/loadavg';
	my ($load, $running) = PostgreSQL::Test::Utils::slurp_file('/proc/loadavg')
	  =~ m{^(\S+) \S+ \S+ (\d+)/};
	my $processors = () =
	  PostgreSQL::Test::Utils::slurp_file('/proc/cpuinfo') =~ /^processor\s/mg;
	my $times = max($load, $running) / ($processors || 1);

	return $times > 1 ? $times : 1;
}

# One test: a time in seconds; never early, 0.3 s late, or more on a machine
# that is busy.  The early side has a millisecond for the two clocks that are
# compared.
sub between
{
	my ($got, $expected, $name, $late) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $limit = $expected + ($late // 0.3) * busy();

	return ok($got >= $expected - 0.001 && $got <= $limit, $name)
	  || diag(sprintf 'got %.4f s, expected %.4f s to %.4f s', $got, $expected,
		$limit);
}

# Processes beside the test: what they die of reaches it by a file.
my $last_words;

# Runs code in a process of its own, and returns its number.
sub in_child
{
	my ($code) = @_;

	$last_words //= PostgreSQL::Test::Utils::tempdir() . '/last_words';
	my $pid = fork // die "could not fork: $!";
	return $pid if $pid;
	$SIG{TERM} = 'DEFAULT';
	eval { $code->(); 1; } or fatal($@);
	POSIX::_exit(0);
}

# In such a process: says what is wrong, and ends it.
sub fatal
{
	my ($text) = @_;

	$text =~ s/\n*\z/\n/;
	open my $fh, '>>', $last_words or POSIX::_exit(2);
	syswrite $fh, $text;
	close $fh;
	POSIX::_exit(1);
}

# One test: waits for these processes, which are to end well; shows what was
# wrong with them, and with those that somebody else has waited for.
sub children_did_well
{
	my ($name, @pids) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @ends;

	for my $pid (@pids)
	{
		waitpid $pid, 0;
		push @ends, sprintf 'process %d: exit %d, signal %d', $pid, $? >> 8,
		  $? & 127
		  if $?;
	}
	my $words = defined $last_words && -e $last_words
	  ? PostgreSQL::Test::Utils::slurp_file($last_words) : '';
	unlink $last_words if $words ne '';
	return ok(!@ends && $words eq '', $name)
	  || diag(join "\n", @ends, $words);
}

1;
