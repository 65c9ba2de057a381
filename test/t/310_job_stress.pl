# Workers claim, wait, finish, release, renew, roll back, fall silent and are
# terminated, while rows are inserted late and out of order.  Everybody writes
# down when it certainly held which row, a trigger writes down what happens to
# the rows, and JobCheck.pm compares.  In the end every row is done, once.
#
# Now and then it is quiet: jobs come one by one, and all workers do is wait for
# them.  Then nobody makes good for a wake-up that was lost.
#
# TOKENLOCK_STRESS_SECONDS sets for how long; the seed is printed, and
# TOKENLOCK_STRESS_SEED repeats it (as far as a race can be repeated).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JobCheck;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $seconds = $ENV{TOKENLOCK_STRESS_SECONDS} || (full_run() ? 120 : 20);
my $workers = full_run() ? 32 : 16;
my $seed = $ENV{TOKENLOCK_STRESS_SEED} || time;
my $job_ttl = 1;
my $cycle = $seconds / 2;
note("seed $seed, $workers workers, $seconds s");

my $node = new_server('job_stress',
	conf => "max_connections = 100\nlog_statement = none\n"
	  . "log_min_messages = warning\nlog_min_error_statement = panic\n"
	  . "tokenlock.job_ttl = '$job_ttl s'\n");
my $dir = PostgreSQL::Test::Utils::tempdir();
my $w = session($node, app => 'watch');

$w->query($_) for (
	"CREATE TABLE jobs (id int PRIMARY KEY, status char(1) DEFAULT '0',
		sid text, note text)",
	"CREATE TABLE changes (n bigserial PRIMARY KEY, id int, old char(1),
		new char(1), old_sid text, new_sid text, at float8)",
	"CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS
	\$\$ BEGIN
		INSERT INTO changes (id, old, new, old_sid, new_sid, at)
		VALUES (new.id, old.status, new.status, coalesce(old.sid, ''),
			coalesce(new.sid, ''), extract(epoch FROM clock_timestamp()));
		RETURN NULL;
	END \$\$",
	"CREATE TRIGGER note_change AFTER UPDATE ON jobs FOR EACH ROW
		EXECUTE FUNCTION note_change()",
	"INSERT INTO jobs SELECT i * 10 FROM generate_series(1, 500) i",
	"SELECT job_table_set('jobs', wake => true)");

my $begin = time;
my $end = $begin + $seconds;

# For how long it will still be quiet (from then on); 0: it is not.
sub quiet
{
	my $at = ($_[0] // time) - $begin;
	my $left = $cycle - $at + $cycle * int($at / $cycle);
	return $left < 0.6 * $cycle ? $left : 0;
}

#
# A worker: a process that lives many lives, each with a sid of its own.
#
package Worker;

use Time::HiRes qw(sleep time);

sub new
{
	my ($class, $n) = @_;
	my $self = bless { n => $n, life => 0, held => {} }, $class;
	open $self->{log}, '>', "$dir/worker.$n" or die $!;
	open $self->{waits}, '>', "$dir/waits.$n" or die $!;
	return $self;
}

sub begin_life
{
	my ($self) = @_;

	# Somebody may have been terminated before it has said a word.
	do
	{
		$self->{conn} = eval { main::session($node, app => 'worker') };
		die $@ if !$self->{conn} && $@ !~ /57P01|08006/;
	} until $self->{conn};
	$self->{life}++;
	$self->{sid} = "w$self->{n}.$self->{life}";
	$self->{wanted} = (0.3, 0.6, 1.5)[ rand 3 ];
	$self->{ttl} = $job_ttl;    # until it has claimed with its own
	$self->{lease} = 0;
	$self->{late} = 0;      # it may have lapsed, and renew has not said so
	$self->{resume} = rand() < 0.8 ? 'true' : 'false';
	return;
}

# The worker no longer relies on having these rows, from that time on.
sub let_go
{
	my ($self, $at, @ids) = @_;

	for my $id (@ids)
	{
		my $from = delete $self->{held}{$id} // next;
		my $to = $at < $self->{lease} ? $at : $self->{lease};
		printf {$self->{log}} "%s\t%d\t%.6f\t%.6f\n", $self->{sid}, $id,
		  $from, $to
		  if $to > $from;
	}
	return;
}

sub let_all_go
{
	my ($self, $at) = @_;
	return $self->let_go($at, keys %{ $self->{held} });
}

# Sends a query; returns its result, or nothing when the session is gone.
sub call
{
	my ($self, $sql) = @_;

	$self->{sent} = time;
	my $res = $self->{conn}->send($sql)->result(60);
	if (my $e = $res->{error})
	{
		die "$self->{sid}: $e in $sql" if $e->code !~ /^(57P01|08006)$/;
		return;
	}
	return $res;
}

# A call that restarts the lease, once it is answered and committed.
sub restarted
{
	my ($self, $sent) = @_;

	# What was held may have been lost before the call was carried out.
	if (time > $self->{lease})
	{
		$self->let_all_go($self->{lease});
		$self->{late} = 1 if $self->{lease};
	}
	$self->{lease} = $sent + $self->{ttl};
	return;
}

sub array { return "'{" . join(',', @_) . "}'::int[]"; }

sub some_held
{
	my ($self) = @_;
	return grep { rand() < 0.7 } keys %{ $self->{held} };
}

sub claim
{
	my ($self) = @_;
	my @done = rand() < 0.5 ? $self->some_held : ();
	my $batch = (0, 1, 1, 3, 10, 40)[ rand 6 ];
	my $transaction = rand() < 0.3;
	my $back = $transaction && rand() < 0.4;
	my $savepoint = $transaction && rand() < 0.3;

	# while it is in doubt whether they are done, it does not rely on them
	my $sent = time;
	$self->let_go($sent, @done);
	return if $transaction && !$self->call('BEGIN');
	return if $savepoint && !$self->call('SAVEPOINT s');
	my $res = $self->call("SELECT id FROM claim_jobs(NULL::jobs,
		'$self->{sid}', $batch, done => " . array(@done) . ",
		ttl => '$self->{wanted} s', resume => $self->{resume})") or return;
	$self->{ttl} = $self->{wanted};
	return if $savepoint && $back && !$self->call('ROLLBACK TO s');
	if ($transaction)
	{
		# while it is open the worker is alive, and its ttl starts at the end
		sleep rand(rand() < 0.1 ? 2 : 0.05);
		$sent = time if !$back;
		return if !$self->call($back && !$savepoint ? 'ROLLBACK' : 'COMMIT');
	}
	$self->restarted($sent);
	return 1 if $back;

	my $now = time;
	$self->{held}{ $_->[0] } //= $now for @{ $res->{rows} };
	return 1;
}

# Waits for jobs, having nothing else to do.  The answer may be old when it
# arrives, as far as the lease goes: a renewal tells.
sub wait_for_jobs
{
	my ($self) = @_;

	return if !$self->finish(keys %{ $self->{held} });
	my $wait = main::quiet() + rand 0.3;
	$wait = $end - time if $wait > $end - time;
	$wait = 0.001 if $wait < 0.001;
	my $sent = time;
	my $res;
	if (rand() < 0.3)
	{
		$res = $self->call("CALL wait_jobs('jobs', '$wait s')");
		$self->note_wait($sent);
		return $res && $self->claim;
	}
	my $batch = 1 + int rand 3;
	$res = $self->call("SELECT id FROM claim_jobs(NULL::jobs, '$self->{sid}',
		$batch, wait => '$wait s', resume => $self->{resume})");
	$self->note_wait($sent);
	return if !$res;
	$self->restarted($sent);
	my $now = time;
	return if @{ $res->{rows} } && !$self->renew;
	$self->{held}{ $_->[0] } //= $now for @{ $res->{rows} };
	return 1;
}

sub note_wait
{
	my ($self, $sent) = @_;
	printf {$self->{waits}} "%s\t%.6f\t%.6f\n", $self->{sid}, $sent, time;
	return;
}

sub finish
{
	my ($self, @ids) = @_;
	my $sent = time;
	my $asked = @ids;

	$self->let_go($sent, @ids);
	my $res = $self->call("SELECT finish_jobs('jobs', '$self->{sid}', "
		  . array(@ids) . ')') or return;
	my $n = $res->{rows}[0][0];
	# nobody can have taken what it certainly held until the answer came
	die "$self->{sid}: $n of $asked finished"
	  if $n > $asked || ($n < $asked && time < $self->{lease});
	$self->restarted($sent);
	return 1;
}

sub release
{
	my ($self) = @_;
	my $all = rand() < 0.3;
	my @ids = $all ? keys %{ $self->{held} } : $self->some_held;
	my $sent = time;

	$self->let_go($sent, @ids);
	$self->call("SELECT release_jobs('jobs', '$self->{sid}'"
		  . ($all ? '' : ', ' . array(@ids)) . ')') or return;
	$self->restarted($sent);
	return 1;
}

sub renew
{
	my ($self) = @_;
	my $sent = time;
	my $res = $self->call("SELECT renew_jobs('jobs', '$self->{sid}')") or return;

	if ($res->{rows}[0][0] eq 't')
	{
		$self->restarted($sent);
	}
	else
	{
		die "$self->{sid}: said to have lapsed, but it has not"
		  if time < $self->{lease} && !$self->{late};
		$self->{late} = 0;
		$self->let_all_go($sent);
	}
	return 1;
}

# What it does next; false when its session is gone.
sub act
{
	my ($self) = @_;
	my $dice = rand;

	return $self->wait_for_jobs if main::quiet() || $dice < 0.1;
	return $self->claim if $dice < 0.5;
	return $self->finish($self->some_held) if $dice < 0.75;
	return $self->renew if $dice < 0.9;
	return $self->release if $dice < 0.95;
	sleep rand 1;    # not so well, perhaps too slow
	return 1;
}

sub run
{
	my ($self, $end) = @_;

	while (time < $end)
	{
		$self->begin_life;
		my $acts = 1 + int rand 60;
		while ($acts-- > 0 && time < $end)
		{
			last if !$self->act;
			sleep rand 0.02;
		}
		# It dies without a word; its lease runs on.
		$self->{conn}->drop;
		$self->let_all_go($self->{lease});
	}
	close $self->{log};
	close $self->{waits};
	return;
}

package main;

# Starts a process that runs some code, with a random sequence of its own.
my @pids;

sub start
{
	my ($n, $code) = @_;
	push @pids, in_child(sub { srand($seed + $n); $code->(); });
	return;
}

for my $n (1 .. $workers)
{
	start($n, sub { Worker->new($n)->run($end); });
}

# Producers: batches of new rows, some committed late, behind what others have
# inserted and got done in the meantime, some not at all.
for my $p (1 .. 3)
{
	start(
		1000 + $p,
		sub {
			my $c = session($node, app => 'producer');
			my $id = 5000;
			open my $log, '>', "$dir/ready.$p" or die $!;
			while (time < $end)
			{
				my $n = quiet() ? 1 : 1 + int rand 60;
				$c->query('BEGIN');
				my @ids = map { $_->[0] } $c->rows("INSERT INTO jobs
					SELECT $id + i * 10 + $p FROM generate_series(1, $n) i
					RETURNING id");
				$id += $n * 10;
				sleep rand(rand() < 0.1 ? 2 : 0.1);
				my $back = rand() < 0.1;
				my $sent = time;
				$c->query($back ? 'ROLLBACK' : 'COMMIT');
				printf $log "%d\t%.6f\t%.6f\n", $_, $sent, time
				  for $back ? () : @ids;
				sleep rand 4 if quiet();
			}
			close $log;
			$c->quit;
		});
}

# Somebody sets rows back that were done, locks some, and ends sessions.
start(
	2000,
	sub {
		my $c = session($node, app => 'hand');
		open my $log, '>', "$dir/late.1" or die $!;
		while (time < $end)
		{
			# how late is who is woken, by whatever?
			my $sent = time;
			$c->query('SELECT pg_sleep(0.05)');
			if (quiet())
			{
				printf $log "%.3f\n", time - $sent - 0.05;
				next if rand() < 0.9;
			}
			$c->query("UPDATE jobs SET status = '0', sid = 'hand'
				WHERE status = '1' AND id IN (SELECT id FROM jobs
					WHERE status = '1' ORDER BY random() LIMIT 3)");
			$c->query('BEGIN');
			$c->query("SELECT id FROM jobs WHERE status <> '1'
				ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED");
			sleep rand 0.2;
			$c->query('COMMIT');
			$c->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE application_name = 'worker'
				ORDER BY random() LIMIT 1");
			sleep rand 0.2;
		}
		close $log;
		$c->quit;
	});

# The old snapshot of a long report, for half of the time.
start(
	2001,
	sub {
		my $c = session($node, app => 'report');
		$c->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
		$c->query('SELECT count(*) FROM jobs');
		sleep $seconds / 2;
		$c->query('COMMIT');
		$c->quit;
	});

children_did_well('every process got the answers that it may get', @pids);

# One last worker gets all that is left.
my $drained = until_true(
	sub {
		$w->query("SELECT count(*) FROM claim_jobs(NULL::jobs, 'last', 200,
			done => (SELECT array_agg(id) FROM jobs
				WHERE sid = 'last' AND status = '2'))");
		return $w->one("SELECT count(*) FROM jobs WHERE status <> '1'") == 0;
	},
	30);
ok($drained, 'the last worker gets all that is left');
diag($w->one("SELECT json_agg(j) FROM (SELECT status, sid, count(*), min(id)
	FROM jobs WHERE status <> '1' GROUP BY 1, 2) j"))
  if !$drained;

# What happened.
sub read_logs
{
	my ($name, $n) = @_;
	return map { [ split /\t/ ] }
	  map { split /\n/, slurp_file("$dir/$name.$_") } 1 .. $n;
}

my @holds = read_logs('worker', $workers);
my @waits = read_logs('waits', $workers);
my @changes = $w->rows("SELECT id, old, new, old_sid, new_sid, at
	FROM changes ORDER BY n");
my $taken_over = grep { $_->[1] eq '2' && $_->[2] eq '2' && $_->[3] ne $_->[4] }
  @changes;
my $done = grep { $_->[2] eq '1' } @changes;
note(scalar(@holds) . ' holds, ' . scalar(@changes) . " changes, $done done,"
	  . " $taken_over taken over");
cmp_ok($done, '>', $seconds * 20, 'much was done');
cmp_ok($taken_over, '>', $seconds, 'much was taken over');

my @violations = JobCheck::check(\@holds, \@changes);
is(scalar(@violations), 0, 'no row was held by two, robbed, or done twice');
diag($_) for @violations[ 0 .. ($#violations > 20 ? 20 : $#violations) ];

# Ready is what was inserted, given back or set back.  A claim that is rolled
# back may have kept it locked for two seconds.
my @ready = (
	read_logs('ready', 3),
	map { [ $_->[0], $_->[5], $_->[5] ] }
	  grep { $_->[1] ne '0' && $_->[2] eq '0' } @changes);
my $soon = 3 + 10 * max(map { @{$_} } read_logs('late', 1));
my $long = grep { $_->[2] - $_->[1] > 1 } @waits;
note(scalar(@waits) . " waits, $long of more than a second; soon is $soon s");
cmp_ok($long, '>', $workers, 'much was waited for');
my ($slept) = JobCheck::check_waits(\@waits, \@ready, \@changes, $soon);
is(scalar(@{$slept}), 0, 'nobody slept while there was a job');
diag($_) for @{$slept}[ 0 .. ($#{$slept} > 20 ? 20 : $#{$slept}) ];

# Those that came one by one, when what was left over was done.
my (undef, $late) = JobCheck::check_waits(\@waits,
	[ grep { quiet($_->[2]) && quiet($_->[2]) < 0.4 * $cycle } @ready ], \@changes, $soon);
note(sprintf '%d jobs waited for, late by %.3f s (half), %.3f s, %.3f s (all)',
	scalar(@{$late}), @{$late}[ @{$late} / 2, @{$late} * 0.9, -1 ]);

is( $w->one(
		"SELECT count(*) FROM pg_stat_activity WHERE state = 'active'
		 AND application_name = 'worker'"),
	0, 'no worker is left over');
is($w->one("SELECT count(*) FROM job_workers WHERE claimed > 0"),
	0, 'nor does shared memory know of rows that are held');
$w->quit;
$node->stop;
done_testing();
