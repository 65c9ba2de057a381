# Dozens of sessions take, wait for, renew, let lapse and drop a few tokens;
# some are cancelled, some terminated, some clients killed.  Everybody writes
# down what it sent and what it was answered, and check_log.pl then looks for
# two holders at a time, for overtaking in line, for fences that shrink, and
# for grants that were lost or kept by mistake.
#
# TOKENLOCK_STRESS_SECONDS sets for how long; the seed is printed, and
# TOKENLOCK_STRESS_SEED repeats it (as far as a race can be repeated).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Fcntl;
use List::Util qw(shuffle);
use PgClient;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);
use TokenlockTest;

my $seconds = $ENV{TOKENLOCK_STRESS_SECONDS} || (full_run() ? 120 : 25);
my $clients = full_run() ? 60 : 36;
my $seed = $ENV{TOKENLOCK_STRESS_SEED} || time;
note("seed $seed, $clients clients, $seconds s");

# A few names that all want, some that few want.
my @names = (('hot') x 4, ('warm 1', 'warm 2') x 2, map { "cool $_" } 1 .. 6);

my $node = new_server('stress',
	conf => "max_connections = 150\nlog_statement = none\n"
	  . "log_min_messages = warning\nlog_min_error_statement = panic\n"
	  . "deadlock_timeout = 100ms\n");
my $w = session($node, app => 'watch');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub now { return clock_gettime(CLOCK_MONOTONIC); }

#
# A client: one process with one session at a time, and a log of its own.
#
package Client;

sub new
{
	my ($class, %opt) = @_;
	my $self = bless { %opt, req => 0, life => 0 }, $class;
	open $self->{log}, '>', "$opt{dir}/client.$opt{id}" or die $!;
	return $self;
}

# A line is written in one go, so that a killed client leaves whole lines.
sub note_at
{
	my ($self, $at, @fields) = @_;
	my $line = join("\t", sprintf('%.6f', $at), $self->{name}, @fields);
	syswrite $self->{log}, "$line\n";
	return;
}

sub note
{
	my ($self, @fields) = @_;
	return $self->note_at(main::now(), @fields);
}

# A new session.  Its owner name is one life of one process, but for a few that
# share one.
sub connect
{
	my ($self) = @_;
	my $conn;

	# Somebody may have been terminated before it has said a word.
	while (!$conn)
	{
		$conn = eval { main::session($self->{node}, app => 'stress') };
		main::fatal("could not connect: $@")
		  if !$conn && $@ !~ /^(57P01|08006)/;
	}
	$self->{conn} = $conn;
	$self->{life}++;
	$self->{name} = "c$self->{id}.$self->{life}";
	$self->{owner} = $self->{id} % 9 == 0 ? 'shared' : $self->{name};
	$self->{left} = [];
	$self->{left_lease} = {};
	$self->{gone} = 0;
	$self->{tx} = 0;
	$self->note('open', $conn->pid);
	return;
}

# Sends a query and returns (its row, undef) or (undef, SQLSTATE).
sub call
{
	my ($self, $sql) = @_;
	my $res = $self->{conn}->send($sql)->result(60);
	if (my $e = $res->{error})
	{
		my $code = $e->code;
		main::fatal("$self->{name}: $e in $sql")
		  if $code !~ /^(57014|57P01|08006)$/;
		$self->{gone} = 1 if $self->{conn}->lost;
		$self->{context} = $e->context;
		return (undef, $code);
	}
	return ($res->{rows}[0] // [], undef);
}

# The same, again and again while it is cancelled.
sub insist
{
	my ($self, $sql) = @_;
	while (!$self->{gone})
	{
		my ($row, $error) = $self->call($sql);
		return $row if $row;
	}
	return;
}

sub owner_of
{
	my ($r) = @_;
	return defined $r->{owner} ? "'$r->{owner}'" : 'NULL';
}

# Returns (fence, undef), (undef, undef) when refused, or (undef, SQLSTATE).
sub ask
{
	my ($self, $r) = @_;
	my $req = ++$self->{req};
	my $wait = defined $r->{wait} ? "'$r->{wait} ms'" : 'NULL';
	my $ttl = defined $r->{ttl} ? "'" . $r->{ttl} * 1000 . " ms'" : 'NULL';
	my $sql = "SELECT granted, fence, answer FROM token_request('$r->{name}',
		wait => $wait, ttl => $ttl, owner => " . owner_of($r) . ",
		scope => '$r->{scope}')";

	$self->note('ask', $req, $r->{name}, $r->{owner} // '-', $r->{ttl} // '-',
		$r->{scope});
	my ($row, $error) = $self->call($sql);
	$self->note('ans', $req, $row ? ($row->[0], $row->[1] // '-', $row->[2])
		: ($error, '-', '-'));
	return ($row && $row->[0] eq 't' ? $row->[1] : undef, $error);
}

# An error while the token was held, of a call sent at that time: a transaction
# has failed then, and its token is gone.  Returns true if so.
sub failed
{
	my ($self, $r, $fence, $at) = @_;
	return $self->{gone} if $self->{gone} || !$self->{tx};

	my $own = $r->{scope} eq 'transaction';
	$self->note_at($at, 'put', ++$self->{req}, $r->{name}, $fence) if $own;
	$self->insist('ROLLBACK');
	$self->{tx} = 0;
	return $own || $self->{gone};
}

# Some call while the token is held; true if it is not any more.
sub meanwhile
{
	my ($self, $r, $fence, $sql) = @_;
	my $at = main::now();
	my ($row, $error) = $self->call($sql);
	return $error && $self->failed($r, $fence, $at);
}

sub renew
{
	my ($self, $r, $fence) = @_;
	my $req = ++$self->{req};
	my $at = main::now();

	$self->note_at($at, 'renew', $req, $r->{name}, $fence, $r->{ttl});
	my ($row, $error) = $self->call("SELECT token_renew('$r->{name}', '"
		  . $r->{ttl} * 1000 . " ms', owner => " . owner_of($r)
		  . ", fence => $fence)");
	$self->note('renans', $req, $row ? $row->[0] : $error);
	return $error && $self->failed($r, $fence, $at);
}

# Gives back, and insists on it: a put that was cancelled may have been done or
# not, and nothing is to be held unknown to the log.
sub put
{
	my ($self, $r, $fence, $how) = @_;
	my %sql = (
		put => "SELECT token_put('$r->{name}', owner => " . owner_of($r)
		  . ", fence => $fence)",
		all => 'SELECT token_put_all() > 0',
		commit => 'COMMIT',
		rollback => 'ROLLBACK',
		discard => 'DISCARD ALL');

	while (1)
	{
		my $req = ++$self->{req};
		my $at = main::now();
		$self->note_at($at, 'put', $req, $r->{name}, $fence);
		# Two of the ways give back what was left to lapse, too.
		if ($how eq 'all' || $how eq 'discard')
		{
			$self->note_at($at, 'put', ++$self->{req}, @$_)
			  for @{ $self->{left} };
		}
		my ($row, $error) = $self->call($sql{$how});
		$self->note('putans', $req, $row ? $row->[0] // '-' : $error);
		return if $self->{gone};
		if (!$error)
		{
			$self->{tx} = 0 if $how =~ /commit|rollback/;
			$self->{left} = [] if $how =~ /all|discard/;
			return;
		}
		return if $self->failed($r, $fence, $at);
	}
}

sub pause
{
	my ($longest) = @_;
	Time::HiRes::sleep(rand() * $longest);
	return;
}

# One request and all that follows from it.
sub round
{
	my ($self) = @_;
	$self->attempt;
	$self->insist('COMMIT') if $self->{tx};
	$self->{tx} = 0;
	return;
}

sub attempt
{
	my ($self) = @_;
	my %r = (
		name => $self->{names}[ rand @{ $self->{names} } ],
		scope => 'session');

	# Leases are short, so that some lapse in use.
	my $kind = rand;
	if ($kind < 0.4)
	{
		@r{qw(owner ttl)} = ($self->{owner}, 0.15);
	}
	elsif ($kind < 0.5)
	{
		$r{ttl} = 0.02 + int(rand(100)) / 1000;
	}
	elsif ($kind < 0.7)
	{
		$r{scope} = 'transaction';
	}
	my $patience = rand;
	$r{wait} = $patience < 0.2 ? 0
	  : $patience < 0.4 ? 1 + int(rand(30))
	  : $patience < 0.8 ? 20_000
	  :                   undef;

	if ($r{scope} eq 'transaction' || rand() < 0.1)
	{
		$self->insist('BEGIN') or return;
		$self->{tx} = 1;
	}
	my ($fence, $error) = $self->ask(\%r);
	return if $self->{gone};
	if ($error)
	{
		my $waited = $self->{context} =~ /while waiting for token/;
		$self->insist('ROLLBACK') if $self->{tx};
		$self->{tx} = 0;
		# A cancel that comes when the call has answered, but its statement
		# has not ended, loses the answer: whatever was taken is given back.
		if (!$waited)
		{
			$self->insist("SELECT token_put('$r{name}', owner => "
				  . owner_of(\%r) . ")")
			  if ($r{owner} // '') ne 'shared';
			return;
		}
		# What another session of this owner has proves nothing, nor does
		# what was left to lapse and has not yet.
		return if ($r{owner} // '') eq 'shared';
		return if grep { $_->[0] eq $r{name} } @{ $self->{left} };
		return if defined $r{owner} && $self->{left_lease}{ $r{name} };
		my $row = $self->insist("SELECT token_fence('$r{name}', owner => "
			  . owner_of(\%r) . ")") or return;
		$self->note('probe', $r{name}, $row->[0] // '-');
		return;
	}
	return if !defined $fence;

	# Work, with or without looking after the lease.
	pause(0.004);
	if (defined $r{ttl} && rand() < 0.5)
	{
		for (1 .. 1 + int(rand(3)))
		{
			return if $self->renew(\%r, $fence);
			pause(0.01);
		}
	}
	return
	  if rand() < 0.05
	  && $self->meanwhile(\%r, $fence, 'SELECT pg_advisory_unlock_all()');
	return
	  if $self->{tx}
	  && rand() < 0.2
	  && $self->meanwhile(\%r, $fence, 'SAVEPOINT s');

	# The end of it: a lease may be left to lapse, and now and then is used
	# for longer than it lasts.
	my $how = 'put';
	if ($r{scope} eq 'transaction')
	{
		$how = !$self->{tx} ? 'put'
		  : rand() < 0.5 ? 'commit' : rand() < 0.7 ? 'rollback' : 'put';
	}
	elsif (!defined $r{owner} && rand() < 0.2)
	{
		$how = $self->{tx} || rand() < 0.5 ? 'all' : 'discard';
	}
	elsif (defined $r{ttl})
	{
		my $fate = rand;
		pause(2 * $r{ttl}) if $fate < 0.15;
		if ($fate > 0.9)
		{
			push @{ $self->{left} }, [ $r{name}, $fence ] if !defined $r{owner};
			$self->{left_lease}{ $r{name} } = 1 if defined $r{owner};
			return;
		}
	}
	$self->put(\%r, $fence, $how);
	return;
}

sub run
{
	my ($self) = @_;
	srand($self->{seed});
	while (main::now() < $self->{until})
	{
		$self->connect;
		for (1 .. 1 + int(rand(60)))
		{
			last if $self->{gone} || main::now() >= $self->{until};
			$self->round;
		}
		$self->note('end');
		if (rand() < 0.5) { $self->{conn}->quit; }
		else              { $self->{conn}->drop; }
	}
	return;
}

package main;

my $until = now() + $seconds;
my $next_id = 1;
my %child;      # pid -> id

sub start_client
{
	my $id = $next_id++;
	my $pid = in_child(
		sub {
			Client->new(
				id => $id,
				dir => $dir,
				node => $node,
				names => \@names,
				seed => $seed * 1000 + $id,
				until => $until)->run;
		});
	$child{$pid} = $id;
	return;
}

# Watches who sleeps in line: who does so has joined the queue of the lock.
my $watcher = in_child(
	sub {
		my $c = session($node, app => 'watch');
		open my $log, '>', "$dir/watcher" or die $!;
		while (now() < $until)
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
	});

# Cancels and terminates sessions at random.
my $killer = in_child(
	sub {
		srand($seed);
		my $c = session($node, app => 'watch');
		open my $log, '>', "$dir/killer" or die $!;
		while (now() < $until)
		{
			my $pid = $c->one("SELECT pid FROM pg_stat_activity
				WHERE application_name = 'stress'
				ORDER BY random() LIMIT 1");
			if (defined $pid)
			{
				if (rand() < 0.85)
				{
					$c->one("SELECT pg_cancel_backend($pid)");
				}
				else
				{
					syswrite $log, join("\t", sprintf('%.6f', now()), 'killer',
						'stop', $pid) . "\n";
					$c->one("SELECT pg_terminate_backend($pid)");
				}
			}
			sleep rand(0.06);
		}
	});

start_client() for 1 .. $clients;

# Kills clients at random, and starts others in their place.
srand($seed + 1);
my $killed = 0;
my @kills;
while (now() < $until)
{
	sleep rand(0.3);
	my ($victim) = shuffle keys %child;
	my $id = $child{$victim};
	my $at = sprintf '%.6f', now();
	kill 'KILL', $victim;
	waitpid $victim, 0;
	delete $child{$victim};
	$killed++;
	push @kills, [ $at, $id ];
	start_client() if now() < $until - 1;
}

# Let all of them come to their end.
children_did_well('no client met an error that it should not meet',
	keys %child, $watcher, $killer);

# A killed client was alive until then; which session it had stands in its log.
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

# Afterwards all is free.
ok( until_true(
		sub {
			$w->one("SELECT count(*) = 0 FROM pg_stat_activity
				WHERE application_name = 'stress'") eq 't';
		},
		30),
	'all sessions have ended')
  or diag(join "\n",
	map { join ' | ', map { $_ // '' } @$_ }
	  $w->rows("SELECT pid, state, wait_event, query FROM pg_stat_activity
		WHERE application_name = 'stress'"));
is($w->one("SELECT count(*) FROM token_waiters"), '0', 'nobody waits');
ok( until_true(
		sub { $w->one("SELECT count(*) FROM token_holders") == 0 }, 5),
	'nobody holds a token')
  or diag(join "\n",
	map { join ' | ', map { $_ // '' } @$_ }
	  $w->rows("TABLE token_holders"));
is($w->one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
	'0', 'no lock is left');
for my $name (do { my %n = map { $_ => 1 } @names; sort keys %n })
{
	is($w->one("SELECT token_get('$name')"), 't', "$name can be taken");
}

# The server saw nothing that it should not.  (The killer's warnings are about
# sessions that ended before it could end them.)
my @log = grep { !/ watch WARNING/ } split /\n/,
  PostgreSQL::Test::Utils::slurp_file($node->logfile);
my @bad = grep { /PANIC|TRAP|terminated by signal|WARNING/ } @log;
is("@bad", '', 'the server log is clean');

# The log.
my @files = glob "$dir/client.* $dir/watcher $dir/killer $dir/parent";
my ($out, $err) = ('', '');
my $ok = IPC::Run::run(
	[ $^X, "$FindBin::RealBin/../check_log.pl", '--summary', @files ],
	'>', \$out, '2>', \$err);
my @complaints = grep { !/^lines=/ } split /\n/, "$out$err";
my ($summary) = $out =~ /^(lines=.*)$/m;
ok($ok, 'the checker finds nothing wrong')
  or diag(join "\n", scalar(@complaints) . ' complaints, seed ' . $seed,
	@complaints > 20 ? @complaints[ 0 .. 19 ] : @complaints);
note($summary // 'no summary');

# It proves something only if enough has happened.
my %n = ($summary // '') =~ /(\w+)=(\d+)/g;
$n{killed} = $killed;
my %least = (
	grants => 60,
	waited => 20,
	busy => 20,
	failed => 1,
	put => 40,
	renew => 10,
	lapsed => 1,
	stop => 5,
	killed => 1);
cmp_ok($n{$_} // 0, '>=', $least{$_} * $seconds / 10,
	"enough happened: $_ " . ($n{$_} // 0))
  for sort keys %least;

if (!Test::More->builder->is_passing)
{
	my $keep = $node->basedir . '/stress_logs';
	mkdir $keep;
	system 'cp', @files, $keep;
	diag("the logs are in $keep");
}

$node->stop;
done_testing();
