# Waiting for jobs with several sessions, and against the clock: one job wakes
# one waiter, none is lost, whatever becomes of who was woken.  P86
#
# What wakes nobody is looked for after ten seconds where there is the trigger.
# So a job that is claimed within five was not missed.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $soon = 5;
my $node = new_server('job_waiting',
	conf => "max_connections = 100\nmax_prepared_transactions = 5\n"
	  . "log_min_messages = error\nlog_min_error_statement = panic\n"
	  . "autovacuum = off\n");
my $watch = session($node);
my $p = session($node, app => 'producer');

# So many sessions wait for jobs of the table, and these sleep.
sub asleep
{
	my ($table, @clients) = @_;
	my $n = @clients;
	my $pids = join ',', 0, map { $_->pid } @clients;

	return until_true(
		sub {
			$watch->one(
				"SELECT coalesce((SELECT waiting FROM job_tables
						WHERE job_table = '$table'::regclass), 0) = $n
					AND (SELECT count(*) FROM pg_stat_activity
						WHERE pid IN ($pids) AND state = 'active'
						AND wait_event IN ('Extension', 'TokenlockWait')) = $n")
			  eq 't';
		},
		30);
}

# Has them wait for a job, one after the other.
sub wait_for_jobs
{
	my ($table, @clients) = @_;

	for my $n (0 .. $#clients)
	{
		$clients[$n]->send("SELECT id FROM claim_jobs(NULL::$table,
			'w$n', wait => '1 min', resume => false)");
		asleep($table, @clients[ 0 .. $n ]) or BAIL_OUT('does not sleep');
	}
	return;
}

# The id that a call has got, '' for none, an error's code, or 'waits'.
sub got
{
	my ($client, $limit) = @_;

	return 'waits' if !$client->done($limit // $soon);
	my $res = $client->result;
	return $res->{error}->code if $res->{error};
	return join ' ', map { $_->[0] // 'NULL' } @{ $res->{rows} };
}

sub new_table
{
	my ($name, $more) = @_;

	$p->query("CREATE TABLE $name (id int PRIMARY KEY, status text DEFAULT '0',
		sid text, run_at timestamptz)");
	$p->query("SELECT job_table_set('$name', wake => true" . ($more // '') . ')');
	return;
}

# How late something was that the server says when it came due.
sub lateness
{
	my ($table, $id, $client) = @_;
	return $client->{result}{at} - $p->one("SELECT extract(epoch FROM run_at)
		FROM $table WHERE id = $id");
}

my @W = map { session($node, app => "w$_") } 0 .. 49;

#
# One job wakes one, not all.
#
{
	new_table('herd');
	# each look at a ready row counts
	$p->query('CREATE SEQUENCE looks');
	$p->query("CREATE FUNCTION looked(herd) RETURNS boolean LANGUAGE sql VOLATILE
		AS 'SELECT nextval(''public.looks'') > 0'");
	$p->query("SELECT job_table_set('herd', ready_when => 'public.looked(job)')");
	# the first job is locked for a while, so that all who look see it
	$p->query("CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(0.5); RETURN new; END'");
	$p->query('CREATE TRIGGER dawdle BEFORE UPDATE ON herd FOR EACH ROW
		WHEN (old.id = 1) EXECUTE FUNCTION dawdle()');
	wait_for_jobs('herd', @W);
	$p->query('INSERT INTO herd VALUES (1)');
	my @who;
	ok( until_true(
			sub { @who = grep { $W[$_]->done } 0 .. 49; scalar @who }, $soon),
		'one of 50 has the job');
	ok( asleep('herd', map { $W[$_] } grep { $_ != $who[0] } 0 .. 49),
		'the others wait on');
	cmp_ok($p->one('SELECT last_value FROM looks'),
		'<=', 6, 'and few have looked');
	is(got($W[ $who[0] ]), 1, 'it is that job');
	is(scalar(grep { $_->done } @W), 1, 'no other has returned');

	# the others get one each, of one statement
	$p->query('INSERT INTO herd SELECT generate_series(2, 50)');
	is( join(' ', sort { $a <=> $b } map { got($W[$_]) } grep { $_ != $who[0] }
			  0 .. 49),
		join(' ', 2 .. 50),
		'49 jobs of one statement wake all that are left');
	ok(asleep('herd'), 'and nobody is left in the line');
}

#
# Not the clock's business alone: one that is woken, and then cancelled or
# killed with the job locked, leaves it to another.
#
{
	new_table('handed');
	$p->query("CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN new; END'");
	$p->query('CREATE TRIGGER hold_up BEFORE UPDATE ON handed FOR EACH ROW
		EXECUTE FUNCTION hold_up()');
	my $id = 0;
	for my $way ('pg_cancel_backend', 'pg_terminate_backend')
	{
		for my $wake ('claim', 'jobs')
		{
			my $first = session($node);
			my $second = session($node);

			$id++;
			$p->query('SELECT pg_advisory_lock(4711)');
			$first->send($wake eq 'claim' ?
				  "SELECT id FROM claim_jobs(NULL::handed, 'f$id', wait => '1 min')" :
				  "CALL wait_jobs('handed', '1 min')");
			asleep('handed', $first);
			$second->send(
				"SELECT id FROM claim_jobs(NULL::handed, 's$id', wait => '1 min')");
			asleep('handed', $first, $second);
			$p->query("INSERT INTO handed VALUES ($id)");
			ok( until_true(
					sub {
						$watch->one("SELECT count(*) FROM pg_stat_activity
							WHERE wait_event = 'advisory' AND pid = " . $second->pid);
					}),
				'woken');
			$watch->query("SELECT $way(" . $second->pid . ')');
			like(got($second), qr/^57/, "$way of who was woken");
			$p->query('SELECT pg_advisory_unlock(4711)');
			is(got($first), $wake eq 'claim' ? $id : 't', "the other one has it ($wake)");
			ok(asleep('handed'), 'nobody is left in the line');
			$p->query("DELETE FROM handed");
		}
	}
}

#
# Claiming and finishing wakes nobody; what triggers of the application change
# at that does.
#
{
	new_table('chain');
	new_table('other');
	$p->query("INSERT INTO chain VALUES (1, '0'), (2, '1'), (3, '0')");
	$p->query("INSERT INTO other VALUES (1, '1')");
	$p->query("CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS
		\$\$ BEGIN
			UPDATE other SET status = '0' WHERE id = 1;
			UPDATE chain SET status = '0' WHERE id = 2;
			RETURN NULL;
		END \$\$");
	$p->query("CREATE TRIGGER follow AFTER UPDATE ON chain FOR EACH ROW
		WHEN (new.id = 3 AND new.status = '1') EXECUTE FUNCTION follow()");
	$p->query("SELECT id FROM claim_jobs(NULL::chain, 'p', 2)");

	# a ready job that somebody has locked is seen by all who look
	$p->query("INSERT INTO chain VALUES (9, '0')");
	$W[2]->query('BEGIN');
	$W[2]->query('SELECT id FROM chain WHERE id = 9 FOR UPDATE');
	$p->query("CREATE FUNCTION looked(chain) RETURNS boolean LANGUAGE sql VOLATILE
		AS 'SELECT nextval(''public.looks'') > 0'");
	$p->query("SELECT job_table_set('chain', ready_when => 'public.looked(job)')");
	$p->query("INSERT INTO chain SELECT generate_series(11, 30), '2', 'p'");
	wait_for_jobs('chain', $W[0]);
	$W[1]->send("CALL wait_jobs('other', '1 min')");
	asleep('other', $W[1]);
	my $looks = $p->one('SELECT last_value FROM looks');
	for my $id (11 .. 30)
	{
		$p->query("SELECT finish_jobs('chain', 'p', ARRAY[$id])");
		asleep('chain', $W[0]);
	}
	# by the clock perhaps, and that seldom
	cmp_ok($p->one('SELECT last_value FROM looks') - $looks,
		'<', 15, 'jobs that are finished wake nobody');
	$p->query("SELECT finish_jobs('chain', 'p', ARRAY[3])");
	is(got($W[0]), 2, 'a trigger on it makes a job of the same table ready');
	is(got($W[1]), 't', 'and one of another');
	$W[2]->query('ROLLBACK');
}

#
# Jobs of one key: the next one is there when the one ahead is finished.
#
{
	$p->query("CREATE TABLE keyed (id int PRIMARY KEY, status text DEFAULT '0',
		sid text, k text)");
	$p->query('CREATE INDEX ON keyed (k, id)');
	$p->query("SELECT job_table_set('keyed', wake => true, key_column => 'k')");
	$p->query("INSERT INTO keyed SELECT i, '0', NULL, 'a' FROM generate_series(1, 4) i");
	$p->query('BEGIN');
	$p->query("SELECT id FROM claim_jobs(NULL::keyed, 'p', 2)");
	is($W[1]->send("CALL wait_jobs('keyed', '0')")->answer,
		'f', 'a key that is being claimed has no job to claim');
	$p->query('COMMIT');
	is($W[1]->send("CALL wait_jobs('keyed', '0')")->answer,
		'f', 'nor one whose job is claimed');
	wait_for_jobs('keyed', $W[0]);
	$p->query("SELECT finish_jobs('keyed', 'p', ARRAY[1])");
	is(got($W[0]), 2, 'the next one is handed out when that is finished');
	$W[1]->send("CALL wait_jobs('keyed', '1 min')");
	asleep('keyed', $W[1]);
	$W[0]->query("SELECT fail_jobs('keyed', 'w0', ARRAY[2], give_up => true)");
	is(got($W[1]), 't', 'wait_jobs hears of it when that has failed');
	$p->query("SELECT id FROM claim_jobs(NULL::keyed, 'p')");
	wait_for_jobs('keyed', $W[0]);
	$p->query("INSERT INTO keyed VALUES (5, '0', NULL, 'b')");
	is(got($W[0]), 5, 'another key is not held up');
	$W[1]->send("CALL wait_jobs('keyed', '1 min')");
	asleep('keyed', $W[1]);
	$p->query("SELECT release_jobs('keyed', 'p')");
	is(got($W[1]), 't', 'wait_jobs hears of it when that is given back');
}

#
# Jobs that come due.
#
{
	new_table('timed', ", run_at_column => 'run_at'");
	$p->query('CREATE INDEX ON timed (status, run_at)');
	wait_for_jobs('timed', @W[ 0 .. 3 ]);
	$p->query("INSERT INTO timed VALUES (1, '0', NULL, clock_timestamp() + '600 ms')");
	my @who;
	until_true(sub { @who = grep { $W[$_]->done } 0 .. 3; scalar @who });
	is(got($W[ $who[0] ]), 1, 'a job that came due is handed out');
	between(lateness('timed', 1, $W[ $who[0] ]), 0, 'when it did');
	ok(asleep('timed', map { $W[$_] } grep { $_ != $who[0] } 0 .. 3),
		'to one, the others wait on');

	# the one that looks by the clock is cancelled: another one does so
	$p->query("INSERT INTO timed VALUES (2, '0', NULL, clock_timestamp() + '1 s')");
	sleep 0.2;
	my ($next) = grep { $_ != $who[0] } 0 .. 3;
	$W[$next]->cancel;
	is(got($W[$next]), '57014', 'the first in line is cancelled');
	my @left = grep { $_ != $who[0] && $_ != $next } 0 .. 3;
	until_true(sub { @who = grep { $W[$_]->done } @left; scalar @who });
	between(lateness('timed', 2, $W[ $who[0] ]), 0, 'another one looks in time');
	$W[ $who[0] ]->result;
	($next) = grep { $_ != $who[0] } @left;

	# found together with one that is due at once
	my ($x, $y) = @W[ 10, 11 ];
	$x->send("SELECT id FROM claim_jobs(NULL::timed, 'x', 5, wait => '1 min')");
	asleep('timed', $W[$next], $x);
	$p->query("INSERT INTO timed VALUES (3, '0', NULL, clock_timestamp()),
		(4, '0', NULL, clock_timestamp() + '600 ms')");
	is(got($x), 3, 'one of two is due at once');
	is(got($W[$next]), 4, 'the other later');
	between(lateness('timed', 4, $W[$next]), 0, 'when it is due');

	# put off by who failed it
	$x->query("SELECT fail_jobs('timed', 'x', ARRAY[3], retry_in => '700 ms')");
	$y->send("SELECT id FROM claim_jobs(NULL::timed, 'y', wait => '1 min')");
	is(got($y), 3, 'failed, and tried again');
	between(lateness('timed', 3, $y), 0, 'when it is due');
	$y->send("CALL wait_jobs('timed', '1 min')");
	asleep('timed', $y);
	$p->query("UPDATE timed SET status = '0', run_at = clock_timestamp() + '500 ms'
		WHERE id = 3");
	is(got($y), 't', 'wait_jobs hears of it, too');
	between(lateness('timed', 3, $y), 0, 'when it is due');
}

#
# Workers that lapse.
#
{
	new_table('lapsing');
	wait_for_jobs('lapsing', @W[ 0 .. 2 ]);
	$p->query('BEGIN');
	$p->query('INSERT INTO lapsing VALUES (1)');
	$p->query("SELECT id FROM claim_jobs(NULL::lapsing, 'dead', ttl => '1 s')");
	$p->query('COMMIT');
	my $start = time;
	my @who;
	until_true(sub { @who = grep { $W[$_]->done } 0 .. 2; scalar @who });
	is(got($W[ $who[0] ]), 1, 'a dead worker\'s job is handed out');
	between($W[ $who[0] ]{result}{at} - $start, 1, 'when its lease is over');
	ok(asleep('lapsing', map { $W[$_] } grep { $_ != $who[0] } 0 .. 2),
		'to one, the others wait on');
	$_->cancel for map { $W[$_] } grep { $_ != $who[0] } 0 .. 2;
	$_->result for map { $W[$_] } grep { $_ != $who[0] } 0 .. 2;

	$p->query('BEGIN');
	$p->query('INSERT INTO lapsing VALUES (2)');
	$p->query("SELECT id FROM claim_jobs(NULL::lapsing, 'dead 2', ttl => '700 ms')");
	$p->query('COMMIT');
	$start = time;
	$W[0]->send("CALL wait_jobs('lapsing', '1 min')");
	is(got($W[0]), 't', 'wait_jobs hears of it, too');
	between($W[0]{result}{at} - $start, 0.7, 'when the lease is over');
	# deleted under a dead worker: no job, and no reason to look without end
	$p->query('DELETE FROM lapsing');
	$W[0]->send("CALL wait_jobs('lapsing', '200 ms')");
	is(got($W[0]), 'f', 'what a dead worker had is gone');

	# a worker that waits is alive
	$W[0]->query('INSERT INTO lapsing VALUES (3), (4)');
	$W[0]->query("SELECT id FROM claim_jobs(NULL::lapsing, 'long', ttl => '300 ms')");
	$W[0]->query("SELECT id FROM claim_jobs(NULL::lapsing, 'other', ttl => '1 h')");
	$W[0]->send("SELECT id FROM claim_jobs(NULL::lapsing, 'long',
		wait => '1 s', resume => false)");
	answers($W[1], "(SELECT count(*) FROM claim_jobs(NULL::lapsing, 'heir',
		wait => '600 ms'))", 0, 'one that waits does not lapse');
	$W[0]->result;
}

#
# Prepared transactions, wake_jobs, limits on waiting.
#
{
	new_table('prepared');
	wait_for_jobs('prepared', $W[0]);
	$p->query('BEGIN');
	$p->query('INSERT INTO prepared VALUES (1)');
	$p->query("PREPARE TRANSACTION 'p1'");
	ok(asleep('prepared', $W[0]), 'a prepared insert wakes nobody');
	$p->query("COMMIT PREPARED 'p1'");
	is(got($W[0]), 1, 'its commit does');

	$p->query("SELECT release_jobs('prepared', 'w0')");
	$p->query('BEGIN');
	$p->query("SELECT id FROM claim_jobs(NULL::prepared, 'p')");
	$p->query("PREPARE TRANSACTION 'p2'");
	wait_for_jobs('prepared', $W[0]);
	$p->query("ROLLBACK PREPARED 'p2'");
	is(got($W[0]), 1, 'and the rollback of a prepared claim');

	$p->query("SELECT job_table_reset('prepared', 'wake')");
	wait_for_jobs('prepared', $W[0]);
	$p->query('INSERT INTO prepared VALUES (2)');
	is(got($W[0], 3), 2, 'without the trigger it looks once a second');
	my @took;
	for my $id (3 .. 7)
	{
		wait_for_jobs('prepared', $W[0]);
		$p->query('BEGIN');
		$p->query("INSERT INTO prepared VALUES ($id)");
		$p->query("SELECT wake_jobs('prepared')");
		my $start = time;
		$p->query('COMMIT');
		is(got($W[0]), $id, 'wake_jobs');
		push @took, $W[0]{result}{at} - $start;
	}
	@took = sort { $a <=> $b } @took;
	cmp_ok($took[2], '<', 0.3, 'at once');

	$W[0]->query("SET statement_timeout = '200 ms'");
	$W[0]->send("SELECT id FROM claim_jobs(NULL::prepared, 'w0', resume => false, wait => NULL)");
	is(got($W[0]), '57014', 'statement_timeout');
	$W[0]->send("CALL wait_jobs('prepared', NULL)");
	is(got($W[0]), '57014', 'statement_timeout, wait_jobs');
	$W[0]->query('RESET statement_timeout');
	$W[0]->query("SET lock_timeout = '100 ms'");
	my $start = time;
	$W[0]->send("SELECT id FROM claim_jobs(NULL::prepared, 'w0', resume => false, wait => '400 ms')");
	is(got($W[0]), '', 'lock_timeout is about locks');
	between(time - $start, 0.4, 'the wait');
	$W[0]->query('RESET lock_timeout');
	ok(asleep('prepared'), 'nobody is left in the line');
}

#
# wait_jobs is in nobody's way.
#
{
	new_table('quiet');
	$W[0]->send("CALL wait_jobs('quiet', '1 min')");
	ok(asleep('quiet', $W[0]), 'waits');
	my $pid = $W[0]->pid;
	is( $watch->one("SELECT concat_ws(' ', backend_xmin, backend_xid) FROM
		pg_stat_activity WHERE pid = $pid"),
		'', 'without a snapshot');
	is( $watch->one("SELECT count(*) FROM pg_locks WHERE pid = $pid
		AND locktype <> 'virtualxid'"),
		0, 'and without a lock');
	$p->query("SET lock_timeout = '10 s'");
	$p->query("SET statement_timeout = '30 s'");
	$p->query('CREATE INDEX CONCURRENTLY quiet_i ON quiet (status)');
	is( $p->one("SELECT indisvalid FROM pg_index
		WHERE indexrelid = 'quiet_i'::regclass"),
		't', 'an index is built');
	$p->query("INSERT INTO quiet VALUES (1, '1')");
	$p->query('DELETE FROM quiet');
	$p->query('VACUUM quiet');
	is($p->one("SELECT pg_relation_size('quiet')"),
		0, 'vacuum removes what was deleted meanwhile');
	$p->query('ALTER TABLE quiet ADD more int');
	ok(asleep('quiet', $W[0]), 'it has waited all the time');
	$p->query('RESET lock_timeout');
	$p->query('RESET statement_timeout');
	$p->query('INSERT INTO quiet VALUES (2)');
	is(got($W[0]), 't', 'and hears of a job');

	# who is told of a job and does not claim it is not the last to be told
	$p->query("UPDATE quiet SET status = '1'");
	$W[$_]->send("CALL wait_jobs('quiet', '1 min')") for 1 .. 3;
	asleep('quiet', @W[ 1 .. 3 ]);
	$p->query('INSERT INTO quiet VALUES (3)');
	is(scalar(grep { got($_) eq 't' } @W[ 1 .. 3 ]),
		3, 'a job that nobody claims is told to all in the end');
	$W[1]->query('DROP TABLE quiet');
}

#
# Partitions; and rows behind the position.
#
{
	$p->query("CREATE TABLE parts (id int PRIMARY KEY, status text DEFAULT '0',
		sid text) PARTITION BY RANGE (id)");
	$p->query('CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (100)');
	$p->query("SELECT job_table_set('parts', wake => true)");
	wait_for_jobs('parts', $W[0]);
	$p->query('INSERT INTO parts VALUES (1)');
	is(got($W[0]), 1, 'inserted by way of the table');
	my @took;
	for my $id (2 .. 6)
	{
		wait_for_jobs('parts', $W[0]);
		my $start = time;
		$p->query("INSERT INTO parts_1 VALUES ($id)");
		is(got($W[0]), $id, 'inserted into a partition');
		push @took, $W[0]{result}{at} - $start;
	}
	@took = sort { $a <=> $b } @took;
	cmp_ok($took[2], '<', 0.3, 'at once');

	# Partitions that come while somebody waits: the next look by the clock is
	# ten seconds away.
	$W[0]->send("CALL wait_jobs('parts', '1 min')");
	asleep('parts', $W[0]);
	$p->query('CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200)');
	ok(asleep('parts', $W[0]), 'a new partition has no jobs');
	$p->query('INSERT INTO parts_2 VALUES (100)');
	is(got($W[0]), 't', 'inserted into a new partition');
	is($W[0]->one("SELECT id FROM claim_jobs(NULL::parts, 'w0',
		resume => false)"), 100, 'it can be claimed');
	$p->query('CREATE TABLE parts_3 (LIKE parts_1 INCLUDING ALL)');
	$p->query('INSERT INTO parts_3 VALUES (200)');
	$W[0]->send("CALL wait_jobs('parts', '1 min')");
	asleep('parts', $W[0]);
	$p->query('ALTER TABLE parts ATTACH PARTITION parts_3 FOR VALUES FROM (200) TO (300)');
	is(got($W[0]), 't', 'attached with a job in it');
	is($W[0]->one("SELECT id FROM claim_jobs(NULL::parts, 'w0',
		resume => false)"), 200, 'which can be claimed');
	wait_for_jobs('parts', $W[0]);
	$p->query('INSERT INTO parts_3 VALUES (201)');
	is(got($W[0]), 201, 'inserted into an attached partition');
	$p->query('DROP TRIGGER tokenlock_wake ON parts_3');
	wait_for_jobs('parts', $W[0]);
	$p->query('INSERT INTO parts_3 VALUES (202)');
	is(got($W[0], 4), 202, 'a partition without the trigger is looked at each second');

	new_table('behind');
	$p->query("INSERT INTO behind SELECT i, '1' FROM generate_series(1, 40000) i");
	$p->query('INSERT INTO behind VALUES (100000)');
	$p->query("SELECT id FROM claim_jobs(NULL::behind, 'p', 1)");
	for my $id (0, -1, -2)
	{
		wait_for_jobs('behind', $W[0]);
		$p->query("INSERT INTO behind VALUES ($id)");
		is(got($W[0]), $id, 'behind the position, in a table of many pages');
	}
}

#
# No wake-up is lost: jobs come one at a time, the next when one is claimed, and
# so there is nobody to make good for one that was missed.  Workers come and go.
#
{
	my $end = time + (full_run() ? 90 : 15);
	my %owner;
	my ($twice, $slow, $slowest) = (0, 0, 0);

	new_table('many');
	for my $n (0 .. 31)
	{
		$W[$n]->query("SET statement_timeout = '20 s'");
		$W[$n]->{have} = '';
	}
	my $next = sub {
		my ($n) = @_;
		my $have = $W[$n]->{have};
		my $kind = int rand 10;
		$W[$n]->{have} = '';
		$W[$n]->send(
			$kind == 0 && $have eq '' ?
			  "CALL wait_jobs('many', '1 s')" :
			  "SELECT id FROM claim_jobs(NULL::many, 'w$n', 1, wait => '" .
			  ($kind < 3 ? '20 ms' : '15 s') . "', done => '{$have}'::int[])");
	};
	$next->($_) for 0 .. 31;
	my $id = 0;
	while (time < $end)
	{
		my $n = 1 + (rand() < 0.2 ? int rand 4 : 0);
		my %open = map { ++$id => 1 } 1 .. $n;
		my $start = time;

		$p->query("INSERT INTO many SELECT generate_series($id - $n + 1, $id)");
		$W[ rand 32 ]->cancel if rand() < 0.05;
		while (%open && time < $start + 30)
		{
			my $select = IO::Select->new(map { $_->{sock} } @W[ 0 .. 31 ]);

			$select->can_read(1);
			for my $w (0 .. 31)
			{
				next if !$W[$w]->done;
				my $res = $W[$w]->result;
				die $res->{error} if $res->{error} && $res->{error}->code ne '57014';
				if (!$res->{error} && ($res->{columns}[0] // '') eq 'id'
					&& @{ $res->{rows} })
				{
					my $got = $res->{rows}[0][0];
					$twice++ if $owner{$got} && $owner{$got} ne "w$w";
					$owner{$got} = "w$w";
					$W[$w]->{have} = $got;
					delete $open{$got};
				}
				$next->($w);
			}
		}
		my $took = time - $start;
		$slowest = $took if $took > $slowest;
		$slow++ if $took > $soon;
		last if %open;
	}
	cmp_ok($id, '>', 100, 'many jobs');
	is(scalar(keys %owner), $id, "each of $id jobs was claimed");
	is($twice, 0, 'by one');
	is($slow, 0, 'and soon');
	note(sprintf 'the slowest took %.3f s', $slowest);
	$_->cancel for @W[ 0 .. 31 ];
	$_->result for @W[ 0 .. 31 ];
	ok(asleep('many'), 'nobody is left in the line');
}

#
# The same with one worker, and nobody else whom the job could wake: it comes
# at about the moment when the worker has looked and is about to sleep.
#
{
	my $end = time + (full_run() ? 60 : 10);
	my $slowest = 0;
	my $id = 0;

	new_table('lone');
	while (time < $end && $slowest < $soon)
	{
		my $start = time;

		$W[0]->send(++$id % 2 ? "CALL wait_jobs('lone', '15 s')" :
			  "SELECT id FROM claim_jobs(NULL::lone, 'w', wait => '15 s')");
		1 while time < $start + rand 0.001;
		$p->query("INSERT INTO lone VALUES ($id)");
		$W[0]->answer;
		my $took = time - $start;
		$slowest = $took if $took > $slowest;
		$p->query("UPDATE lone SET status = '1'");
	}
	cmp_ok($slowest, '<', $soon, 'a single worker misses no job');
	note(sprintf 'the slowest took %.3f s', $slowest);
}

#
# Where tokenlock is not preloaded the trigger does not get in the way.
#
{
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
	my $bare = PostgreSQL::Test::Cluster->new('bare');

	$node->command_ok([ 'pg_dump', '-f', $dump, '-p', $node->port, '-h',
			$node->host, 'postgres' ], 'dumped');
	$p->query('CREATE DATABASE copy');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			'-p', $node->port, '-h', $node->host, 'copy' ], 'restored');
	my $c = session($node, dbname => 'copy');
	is($c->one("SELECT wake FROM job_tables WHERE job_table = 'many'::regclass"),
		't', 'with the setting');
	$W[40] = session($node, dbname => 'copy');
	$W[40]->send("SELECT id FROM claim_jobs(NULL::many, 'c', wait => '1 min')");
	until_true(sub { $c->one('SELECT sum(waiting) FROM job_tables') });
	my $start = time;
	$c->query('INSERT INTO many VALUES (-1)');
	is(got($W[40]), -1, 'and the trigger');

	$bare->init;
	$bare->start;
	$bare->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			'-p', $bare->port, '-h', $bare->host, 'postgres' ],
		'restored where tokenlock is not preloaded');
	my $b = session($bare);
	$b->query('INSERT INTO many VALUES (-2)');
	$b->query("UPDATE many SET status = '0' WHERE id = -2");
	is($b->one('SELECT count(*) FROM many WHERE id = -2'),
		1, 'there the table can be written to');
	is($b->fails("SELECT wake_jobs('many')")->code,
		'55000', 'but nobody can be woken');
	$bare->stop;
}

$node->stop;
done_testing();
