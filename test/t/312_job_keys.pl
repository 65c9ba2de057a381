# Workers claim from tables with a key_column, finish, fail, release, roll back,
# fall silent and are terminated, while rows are inserted, late and out of
# order, locked, and set by hand.  A trigger writes down what happens, and
# JobKeyCheck.pm says whether of each key one job ran at a time, in order.
#
# TOKENLOCK_STRESS_SECONDS sets for how long; the seed is printed, and
# TOKENLOCK_STRESS_SEED repeats it (as far as a race can be repeated).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JobKeyCheck;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $seconds = $ENV{TOKENLOCK_STRESS_SECONDS} || (full_run() ? 120 : 20);
my $workers = full_run() ? 24 : 12;
my $seed = $ENV{TOKENLOCK_STRESS_SEED} || time;
note("seed $seed, $workers workers, $seconds s");

my $node = new_server('job_keys',
	conf => "max_connections = 100\nmax_prepared_transactions = 20\n"
	  . "log_statement = none\nlog_min_messages = warning\n"
	  . "log_min_error_statement = panic\n");
my $dir = PostgreSQL::Test::Utils::tempdir();
my $w = session($node, app => 'watch');

# Rows that are handed out by id, from a position; and in an order of their
# own, with times, from the start each time.
my %tables = (
	by_id => "key_column => 'k'",
	by_rank => "key_column => 'k', order_by => 'rank, id',
		run_at_column => 'run_at'");

$w->query($_) for (
	'CREATE SEQUENCE moment',
	"CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS
	\$\$ BEGIN
		EXECUTE format('INSERT INTO %I VALUES
			(nextval(''moment''), \$1, \$2, \$3, \$4, \$5, \$6, \$7, \$8)',
			TG_TABLE_NAME || '_changes')
		USING current_setting('stress.since', true), new.id, old.status,
			new.status, coalesce(old.sid, ''), coalesce(new.sid, ''),
			old.attempts, new.attempts;
		RETURN NULL;
	END \$\$");
for my $table (sort keys %tables)
{
	$w->query($_) for (
		"CREATE TABLE $table (id int PRIMARY KEY, k text, rank int DEFAULT 0,
			status char(1) DEFAULT '0', sid text, attempts int DEFAULT 0,
			run_at timestamptz NOT NULL DEFAULT '-infinity', error text)",
		"CREATE INDEX ON $table (k, status, "
		  . ($table eq 'by_id' ? 'id' : 'rank, id') . ")",
		"CREATE TABLE ${table}_changes (n bigint PRIMARY KEY, since text, id int,
			old char(1), new char(1), old_sid text, new_sid text, before int,
			after int)",
		"CREATE TRIGGER note_change AFTER UPDATE ON $table FOR EACH ROW
			EXECUTE FUNCTION note_change()",
		"SELECT job_table_set('$table', $tables{$table},
			attempts_column => 'attempts', max_attempts => 4,
			error_column => 'error', ttl => '1 s')",
		"INSERT INTO $table SELECT i * 10, "
		  . "CASE WHEN i % 7 > 0 THEN 'k' || i * i % 40 END, i * 17 % 5
			FROM generate_series(1, 400) i");
}

#
# A worker: a process that lives many lives, each with a sid of its own.
#
package Worker;

use Time::HiRes qw(sleep time);

sub new
{
	my ($class, $n) = @_;
	return bless { n => $n, life => 0 }, $class;
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
	$self->{held} = {};
	$self->{sid} = "w$self->{n}.$self->{life}";
	$self->{table} = rand() < 0.6 ? 'by_id' : 'by_rank';
	$self->{ttl} = (0.3, 0.6, 1.5)[ rand 3 ];
	$self->{resume} = rand() < 0.8 ? 'true' : 'false';
	$self->{strict} = rand() < 0.1;
	return $self->call('SET default_transaction_isolation = '
		  . "'repeatable read'") if $self->{strict};
	return 1;
}

# Sends a query; returns its result, or nothing when the session is gone or
# (with "strict") it is to be tried again.
sub call
{
	my ($self, $sql) = @_;
	my $res = $self->{conn}->send($sql)->result(60);

	if (my $e = $res->{error})
	{
		die "$self->{sid}: $e in $sql"
		  if $e->code !~ /^(57P01|08006)$/
		  && !($self->{strict} && $e->code =~ /^40001$/);
		return;
	}
	return $res;
}

sub some_held
{
	my ($self) = @_;
	return grep { rand() < 0.7 } sort keys %{ $self->{held} };
}

sub array { return "'{" . join(',', @_) . "}'::int[]"; }

# One or a few calls in a transaction, that may be undone or prepared.
sub act
{
	my ($self) = @_;
	my $dice = rand;
	my $end = $dice < 0.6 ? '' : $dice < 0.8 ? 'COMMIT' : $dice < 0.93 ?
	  'ROLLBACK' : 'PREPARE';
	my $savepoint = $end && rand() < 0.4;
	my %before = %{ $self->{held} };

	# what is committed by now is to be seen
	$self->call("SELECT set_config('stress.since',
		nextval('moment')::text, false)") or return;
	return if $end && !$self->call('BEGIN');
	for (1 .. ($end ? 1 + rand 3 : 1))
	{
		my $undo = $savepoint && rand() < 0.5;
		my %kept = %{ $self->{held} };

		return if $savepoint && !$self->call('SAVEPOINT s');
		return if !$self->one_call;
		next if !$undo;
		return if !$self->call('ROLLBACK TO s');
		$self->{held} = \%kept;
	}
	return 1 if !$end;
	sleep rand(rand() < 0.1 ? 1.5 : 0.03);
	if ($end eq 'PREPARE')
	{
		my $name = "$self->{sid}." . int(time * 1e6);
		my $prepared = $self->call("PREPARE TRANSACTION '$name'");

		$self->{held} = {};
		sleep rand 0.05;
		# Who is terminated may have prepared it, and was not told.
		$self->close_prepared($name);
		return $prepared;
	}
	return if !$self->call($end);
	$self->{held} = \%before if $end eq 'ROLLBACK';
	return 1;
}

# Ends a prepared transaction, in a session that nobody terminates.
sub close_prepared
{
	my ($self, $name) = @_;
	my $closer = main::session($node, app => 'closer');

	$closer->query((rand() < 0.5 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'")
	  if $closer->one("SELECT count(*) FROM pg_prepared_xacts
		WHERE gid = '$name'");
	$closer->quit;
	return;
}

sub one_call
{
	my ($self) = @_;
	my $dice = rand;
	my $table = "'$self->{table}', '$self->{sid}'";
	my @ids;

	if ($dice < 0.6)
	{
		my $batch = (1, 1, 3, 10, 30)[ rand 5 ];

		@ids = $self->some_held if rand() < 0.6;
		my $res = $self->call("SELECT id FROM claim_jobs(NULL::$self->{table},
			'$self->{sid}', $batch, done => " . array(@ids) . ",
			ttl => '$self->{ttl} s', resume => $self->{resume})") or return;
		delete @{ $self->{held} }{@ids};
		$self->{held}{ $_->[0] } = 1 for @{ $res->{rows} };
		return 1;
	}
	@ids = $self->some_held;
	if ($dice < 0.75)
	{
		$self->call("SELECT finish_jobs($table, " . array(@ids) . ')') or return;
	}
	elsif ($dice < 0.9)
	{
		my $later = $self->{table} eq 'by_rank' ? rand() < 0.5 ? '0.2 s' : '1.2 s' : '0';

		@ids = splice @ids, 0, 3;
		$self->call("SELECT fail_jobs($table, " . array(@ids) . ", 'no',
			retry_in => '$later', give_up => " . (rand() < 0.1 ? 'true' : 'false')
			  . ')') or return;
	}
	elsif ($dice < 0.95)
	{
		$self->call("SELECT release_jobs($table, " . array(@ids) . ')') or return;
	}
	else
	{
		sleep rand 0.7;    # perhaps too slow
	}
	delete @{ $self->{held} }{@ids};
	return 1;
}

sub run
{
	my ($self, $end) = @_;

	while (time < $end)
	{
		my $acts = 1 + int rand 60;

		next if !$self->begin_life;
		while ($acts-- > 0 && time < $end)
		{
			last if !$self->act;
			sleep rand 0.02;
		}
		# It dies without a word; its lease runs on.
		$self->{conn}->drop;
	}
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

my $end = time + $seconds;
for my $n (1 .. $workers)
{
	start($n, sub { Worker->new($n)->run($end); });
}

# Producers: rows of all keys and none, some committed late, behind what others
# have inserted and got done.  They write down when each could be seen.
for my $p (1 .. 2)
{
	start(
		1000 + $p,
		sub {
			my $c = session($node, app => 'producer');
			open my $log, '>', "$dir/producer.$p" or die $!;
			my $id = 5000;
			while (time < $end)
			{
				my $n = 1 + int rand 20;
				my $table = (sort keys %tables)[ rand 2 ];
				my $hot = rand() < 0.2 ? "'hot'"
				  : "CASE WHEN random() < 0.8 THEN 'k' || floor(random() * 60) END";
				$c->query('BEGIN');
				$c->query("INSERT INTO $table SELECT $id + i * 10 + $p,
					$hot, floor(random() * 5) FROM generate_series(1, $n) i");
				sleep rand(rand() < 0.1 ? 1 : 0.1);
				$c->query('COMMIT');
				my $seen = $c->one("SELECT nextval('moment')");
				print $log join("\t", $table, $id + $_ * 10 + $p, $seen), "\n"
				  for 1 .. $n;
				$id += $n * 10;
			}
			$c->quit;
			close $log;
		});
}

# Somebody sets rows back that were done, and one that is claimed to done,
# locks some, and ends sessions.
start(
	2000,
	sub {
		my $c = session($node, app => 'hand');
		while (time < $end)
		{
			my $table = (sort keys %tables)[ rand 2 ];
			$c->query("UPDATE $table SET status = '0', sid = 'hand'
				WHERE status = '1' AND id IN (SELECT id FROM $table
					WHERE status = '1' ORDER BY random() LIMIT 3)");
			$c->query("UPDATE $table SET status = '1', sid = 'hand'
				WHERE id IN (SELECT id FROM $table WHERE status = '2'
					ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)");
			$c->query('BEGIN');
			$c->query("SELECT id FROM $table WHERE status = '0'
				ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED");
			sleep rand 0.2;
			$c->query('COMMIT');
			$c->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE application_name = 'worker'
				ORDER BY random() LIMIT 1");
			sleep rand 0.3;
		}
		$c->quit;
	});

children_did_well('every process got the answers that it may get', @pids);

for my $table (sort keys %tables)
{
	# One last worker gets all that is left.
	my $drained = until_true(
		sub {
			$w->query("SELECT set_config('stress.since',
				nextval('moment')::text, false)");
			$w->query("SELECT count(*) FROM claim_jobs(NULL::$table, 'last', 200,
				done => (SELECT array_agg(id) FROM $table
					WHERE sid = 'last' AND status = '2'))");
			return $w->one("SELECT count(*) FROM $table
				WHERE status IN ('0', '2')") == 0;
		},
		60);
	ok($drained, "$table: the last worker gets all that is left");
	diag($w->one("SELECT json_agg(j) FROM (SELECT status, sid, k, count(*),
		min(id), (SELECT count(*) FROM pg_prepared_xacts) AS prepared
		FROM $table WHERE status IN ('0', '2') GROUP BY 1, 2, 3) j"))
	  if !$drained;

	my %rows = map {
		$_->[0] => { key => $_->[1], seen => 0,
			rank => $table eq 'by_id' ? $_->[0] : $_->[2] * 1e7 + $_->[0] }
	} $w->rows("SELECT id, k, rank FROM $table");
	for my $p (1, 2)
	{
		open my $log, '<', "$dir/producer.$p" or die $!;
		while (my $line = <$log>)
		{
			my ($of, $id, $seen) = split /\s+/, $line;
			$rows{$id}{seen} = $seen if $of eq $table;
		}
		close $log;
	}
	my @events = $w->rows("SELECT id, old, new, old_sid, new_sid, before, after,
		n, coalesce(nullif(since, ''), '0') FROM ${table}_changes ORDER BY n");
	my $over = grep { $_->[1] eq '2' && $_->[2] eq '2' && $_->[3] ne $_->[4] }
	  @events;
	my $done = grep { $_->[2] eq '1' } @events;
	my $again = grep { $_->[1] eq '2' && $_->[2] eq '0' } @events;
	my $gave_up = grep { $_->[2] eq '3' } @events;
	note("$table: " . scalar(@events) . " events, $done done, $again tried again,"
		  . " $gave_up given up, $over taken over");
	cmp_ok($done, '>', $seconds * 5, "$table: much was done");
	cmp_ok($_->[0], '>', 0, "$table: $_->[1]")
	  for [ $again, 'some failed or were released' ],
	  [ $gave_up, 'some were given up' ], [ $over, 'some were taken over' ];

	my %copy = map { $_ => { %{ $rows{$_} } } } keys %rows;
	my @violations = JobKeyCheck::check(\%copy, \@events);
	is(scalar(@violations), 0,
		"$table: of each key one at a time, in order, all counted, none lost");
	diag($_) for @violations[ 0 .. ($#violations > 20 ? 20 : $#violations) ];

	# The checker would have seen it: make a finish of a key come later than
	# the next claim.
	for my $i (1 .. $#events)
	{
		my ($finish, $claim) = @events[ $i - 1, $i ];
		my ($a, $b) = map { $rows{ $_->[0] }{key} } $finish, $claim;

		next if $finish->[2] ne '1' || $finish->[4] eq 'hand' || $claim->[1] ne '0'
		  || $claim->[2] ne '2' || !defined $a || !defined $b || $a ne $b;
		my @mutant = @events;
		@mutant[ $i - 1, $i ] = ($claim, $finish);
		%copy = map { $_ => { %{ $rows{$_} } } } keys %rows;
		ok(scalar(grep { /^two:/ } JobKeyCheck::check(\%copy, \@mutant)),
			"$table: a claim before the finish would be noticed");
		last;
	}
	is($w->one("SELECT count(*) FROM job_workers WHERE claimed > 0
		AND job_table = '$table'::regclass"),
		0, "$table: nor does shared memory know of rows that are held");
}
$w->quit;
$node->stop;
done_testing();
