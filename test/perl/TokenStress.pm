# A stress run of tokens: clients in processes of their own, somebody who
# watches the line, somebody who cancels and terminates sessions, clients that
# are killed.  Then: did all of them get answers that they may get, is nothing
# left, and do their logs show what tokens promise?  StressClient.pm has the
# clients, TokenCheck.pm the promises.

package TokenStress;

use strict;
use warnings FATAL => 'all';

use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use StressClient;
use Test::More;
use Time::HiRes qw(sleep);
use TokenCheck;
use TokenlockTest;

sub now { return StressClient::now(); }

# The settings of a server for such a run.
our $conf = "max_connections = 150\nlog_statement = none\n"
  . "log_min_messages = warning\nlog_min_error_statement = panic\n"
  . "deadlock_timeout = 100ms\n";

# run(node => .., class => OF CLIENTS, clients => N, names => [..],
#	seconds => N, seed => N, least => { what => that much in 10 s, .. },
#	breaks => SHARE of the interventions, work => TABLE,
#	stopped_commits => TRUE if some wait for a standby until they are cancelled)
#
# A name may be given several times, to be asked for more often.
sub run
{
	my (%opt) = @_;
	my ($node, $seconds, $seed) = @opt{qw(node seconds seed)};
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $w = session($node, app => 'watch');
	my $next_id = 1;
	my %child;      # pid -> id

	note("seed $seed, $opt{clients} clients, $seconds s");

	# All begin when all are there: when the parent closes its end of a pipe.
	pipe my $ready, my $go or die "could not make a pipe: $!";
	my $start = sub {
		my ($code) = @_;
		return in_child(
			sub {
				close $go;
				$code->(sub { sysread $ready, my $nothing, 1; });
			});
	};
	my $start_client = sub {
		my $id = $next_id++;
		my $pid = $start->(
			sub {
				$opt{class}->new(
					id => $id,
					dir => $dir,
					node => $node,
					names => $opt{names},
					seed => $seed * 1000 + $id)->run(@_);
			});
		$child{$pid} = $id;
	};
	my @others = (
		$start->(sub { watch($node, $dir, @_); }),
		$start->(
			sub {
				srand $seed;
				intervene($node, $dir, \%opt, @_);
			}));
	$start_client->() for 1 .. $opt{clients};
	close $go;

	# Kills clients at random, and starts others in their place.  On a machine
	# that is busy otherwise all takes longer, and so does this.
	srand($seed + 1);
	my $began = now();
	my @kills;
	while (now() < $began + $seconds
		|| (now() < $began + 4 * $seconds && log_size($dir) < 5000 * $seconds))
	{
		sleep rand(0.3);
		my ($victim) = shuffle keys %child;
		my $at = sprintf '%.6f', now();
		kill 'KILL', $victim;
		waitpid $victim, 0;
		push @kills, [ $at, delete $child{$victim} ];
		$start_client->();
	}
	open my $over, '>', "$dir/over" or die $!;
	close $over;
	children_did_well('no client met an error that it should not meet',
		keys %child, @others);

	log_kills($dir, @kills);
	log_work($w, $dir, $opt{work}) if $opt{work};
	nothing_left($w, $node, @{ $opt{names} });
	my ($count, $pairs) = logs_are_right($dir, $node, $seed);
	$count->{killed} = @kills;

	# It proves something only if enough has happened.
	for my $what (sort keys %{ $opt{least} })
	{
		cmp_ok($count->{$what}, '>=', $opt{least}{$what} * $seconds / 10,
			"enough happened: $what $count->{$what}");
	}
	return ($count, $pairs);
}

# How much the clients have done, in bytes.
sub log_size
{
	my ($dir) = @_;
	my $size = 0;
	$size += -s for glob "$dir/client.*";
	return $size;
}

# Watches who sleeps in line: who does so has joined the queue of the lock, or
# has its place.
sub watch
{
	my ($node, $dir, $begin) = @_;
	my $c = session($node, app => 'watch');

	open my $log, '>', "$dir/watcher" or die $!;
	$begin->();
	while (!-e "$dir/over")
	{
		my $sent = now();
		my @rows = $c->rows(
			"SELECT name, pid FROM token_waiters JOIN pg_stat_activity
				USING (pid)
			 WHERE wait_event_type IN ('Lock', 'Extension')
			 ORDER BY place DESC");
		my $at = sprintf '%.6f', now();
		my $text = '';
		$text .= join("\t", $at, 'watcher', 'seen', sprintf('%.6f', $sent),
			@$_) . "\n" for @rows;
		syswrite $log, $text;
		sleep 0.015;
	}
	return;
}

# Cancels and terminates sessions, and breaks tokens, at random.
sub intervene
{
	my ($node, $dir, $opt, $begin) = @_;
	my $c = session($node, app => 'watch');
	my $breaks = $opt->{breaks} // 0;
	my $sessions = "FROM pg_stat_activity WHERE application_name = 'stress'";
	my $go_on = "SELECT pg_cancel_backend(pid) $sessions AND wait_event = 'SyncRep'";
	my $req = 0;

	open my $log, '>', "$dir/killer" or die $!;
	my $write = sub {
		syswrite $log, join("\t", sprintf('%.6f', now()), 'killer', @_) . "\n";
	};
	$begin->();
	while (!-e "$dir/over")
	{
		$c->query($go_on) if $opt->{stopped_commits} && rand() < 0.3;
		if (rand() < $breaks)
		{
			my ($name, $fence) = $c->row("SELECT name, fence FROM token_holders
				ORDER BY random() LIMIT 1");
			if (defined $name)
			{
				$write->('break', ++$req, $name, $fence);
				my $done = $c->one("SELECT token_break('$name', $fence)");
				$write->('breans', $req, $done);
			}
		}
		elsif (defined(my $pid = $c->one("SELECT pid $sessions
				ORDER BY random() LIMIT 1")))
		{
			if (rand() < 0.85)
			{
				$c->one("SELECT pg_cancel_backend($pid)");
			}
			else
			{
				$write->('stop', $pid);
				$c->one("SELECT pg_terminate_backend($pid)");
			}
		}
		sleep rand(0.06);
	}
	return if !$opt->{stopped_commits};
	until_true(sub { $c->query($go_on); $c->one("SELECT count(*) $sessions") == 0; });
	return;
}

# A killed client was alive until then; which session it had stands in its log.
sub log_kills
{
	my ($dir, @kills) = @_;

	open my $log, '>', "$dir/parent" or die $!;
	for my $kill (@kills)
	{
		my ($at, $id) = @$kill;
		open my $fh, '<', "$dir/client.$id" or next;
		my $name;
		while (<$fh>)
		{
			$name = (split /\t/)[1] if /\topen\t/;
		}
		print {$log} join("\t", $at, 'parent', 'stop', $name), "\n" if $name;
	}
	close $log;
	return;
}

# The guarded transactions that have committed.
sub log_work
{
	my ($w, $dir, $table) = @_;

	open my $log, '>', "$dir/work" or die $!;
	print {$log} join("\t", 0, 'work', 'work', @$_), "\n"
	  for $w->rows("SELECT name, fence, mode, xid, snapshot FROM $table");
	close $log;
	return;
}

sub show_rows
{
	my ($w, $sql) = @_;
	return diag(join "\n",
		map { join ' | ', map { $_ // '' } @$_ } $w->rows($sql));
}

# Afterwards all is free.
sub nothing_left
{
	my ($w, $node, @names) = @_;
	my $sessions = "FROM pg_stat_activity WHERE application_name = 'stress'";

	ok(until_true(sub { $w->one("SELECT count(*) = 0 $sessions") eq 't'; }, 30),
		'all sessions have ended')
	  or show_rows($w, "SELECT pid, state, wait_event, query $sessions");
	ok(until_true(sub { $w->one('SELECT count(*) FROM token_waiters') == 0 }, 5),
		'nobody waits')
	  or show_rows($w, 'TABLE token_waiters');
	ok(until_true(sub { $w->one('SELECT count(*) FROM token_holders') == 0 }, 5),
		'nobody holds a token')
	  or show_rows($w, 'TABLE token_holders');
	is($w->one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0', 'no lock is left');
	for my $name (do { my %n = map { $_ => 1 } @names; sort keys %n })
	{
		is($w->one("SELECT token_get('$name')"), 't', "$name can be taken");
	}

	# The server saw nothing that it should not.  (The killer's warnings are
	# about sessions that ended before it could end them, or about commits that
	# it lets go on.)
	my @bad = grep {
		/PANIC|TRAP|terminated by signal|WARNING/
		  && !/ watch WARNING|synchronous replication/
	  } split /\n/, PostgreSQL::Test::Utils::slurp_file($node->logfile);
	is("@bad", '', 'the server log is clean');
	return;
}

# Returns what was counted, and what waited for what.
sub logs_are_right
{
	my ($dir, $node, $seed) = @_;
	my @files = grep { !m{/over$} } glob "$dir/*";
	my $check = TokenCheck->new(@files);
	my @violations = $check->violations;
	my $count = $check->count;

	ok(!@violations, 'the checker finds nothing wrong')
	  or diag(join "\n", scalar(@violations) . " complaints, seed $seed",
		@violations > 20 ? @violations[ 0 .. 19 ] : @violations);
	note(join ' ', map { "$_=$count->{$_}" } sort keys %$count);

	if (!Test::More->builder->is_passing)
	{
		my $keep = $node->basedir . '/stress_logs';
		mkdir $keep;
		system 'cp', @files, $keep;
		diag("the logs are in $keep");
	}
	return ($count, $check->pairs);
}

1;
