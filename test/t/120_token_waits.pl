# Waiting behind leases, where the head of the line sleeps on its latch, and
# what becomes of waiters that are cancelled, time out, or die.
# P12 P13 P22 P29 P55

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('waits', conf => "max_connections = 100\n");
my $w = session($node, app => 'watch');

# How a token is taken, waited for and put, by kind of owner.
my %kind = (
	session => {
		get => sub { "SELECT token_get('k')" },
		wait => sub { "token_get('k', wait => '1min')" },
		put => sub { $_[0]->one("SELECT token_put('k')") },
	},
	transaction => {
		get => sub { "BEGIN; SELECT token_get('k', scope => 'transaction')" },
		wait => sub { "token_get('k', wait => '1min', scope => 'transaction')" },
		put => sub { $_[0]->query('COMMIT'); 't' },
		begin => 1,
	},
	owner => {
		get => sub { "SELECT token_get('k', ttl => '1h', owner => 'w$_[0]')" },
		wait => sub {
			"token_get('k', wait => '1min', ttl => '1h', owner => 'w$_[0]')"
		},
		put => sub { $_[0]->one("SELECT token_put('k', owner => 'w$_[1]')") },
	},
	timed => {
		get => sub { "SELECT token_get('k', ttl => '1h')" },
		wait => sub { "token_get('k', wait => '1min', ttl => '1h')" },
		put => sub { $_[0]->one("SELECT token_put('k')") },
	});

sub start_wait
{
	my ($client, $kind, $id) = @_;
	$client->query('BEGIN') if $kind{$kind}{begin};
	waits($w, $client, $kind{$kind}{wait}->($id));
	return;
}

sub nothing_left
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $w->one(
			"SELECT (SELECT count(*) FROM token_holders) || ' '
				 || (SELECT count(*) FROM token_waiters)"),
		'0 0', $name);
	return;
}

subtest 'each kind of holder, each kind of first and second waiter' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	for my $ka (sort keys %kind)
	{
		for my $kb (sort keys %kind)
		{
			for my $kc (sort keys %kind)
			{
				my $mix = "$ka, $kb, $kc";
				$A->query($kind{$ka}{get}->('a'));
				start_wait($B, $kb, 'b');
				start_wait($C, $kc, 'c');
				is($kind{$ka}{put}->($A, 'a'), 't', "$mix: A puts");
				is($B->answer, 't', 'B has it');
				ok(!$C->done, 'C waits');
				is($kind{$kb}{put}->($B, 'b'), 't', 'B puts');
				is($C->answer, 't', 'C has it');
				is($kind{$kc}{put}->($C, 'c'), 't', 'C puts');
			}
		}
	}
	nothing_left('nothing is left');
};

subtest 'P55: the oldest waiter is next' => sub {
	for my $kinds (
		[ ('session') x 6 ],
		[ ('owner') x 6 ],
		[qw(owner session transaction timed owner session)])
	{
		my @s = map { session($node) } 0 .. 5;
		my $g = session($node);
		my $refused = 1;
		$s[0]->query($kind{ $kinds->[0] }{get}->(0));
		start_wait($s[$_], $kinds->[$_], $_) for 1 .. 5;
		is_deeply(
			[ $w->rows("SELECT place, pid FROM token_waiters ORDER BY place") ],
			[ map { [ $_, $s[$_]->pid ] } 1 .. 5 ],
			"@{$kinds}: places are in the order asked");
		for my $i (0 .. 5)
		{
			# G asks again and again, in both manners, and is never first.
			for (1 .. 20)
			{
				$refused &&= $g->one("SELECT token_get('k')") eq 'f';
				$refused &&=
				  $g->one("SELECT token_get('k', owner => 'wg')") eq 'f';
			}
			is($kind{ $kinds->[$i] }{put}->($s[$i], $i), 't', 'put');
			# Between the put and the next one's wake-up nobody slips in.
			if ($i < 5)
			{
				for (1 .. 20)
				{
					$refused &&= $g->one("SELECT token_get('k')") eq 'f';
				}
				is($s[ $i + 1 ]->answer, 't', 'the next one has it');
			}
			if ($i < 4)
			{
				ok(!$s[ $i + 2 ]->done, 'the one after it waits');
			}
		}
		ok($refused, 'G was refused all the time');
		answers($g, "token_get('k')", 't', 'G has it once nobody waits');
		$_->quit for @s, $g;
		until_gone($w, map { $_->pid } @s, $g);
	}
	nothing_left('nothing is left');
};

subtest 'P22: a renewal does not move the line' => sub {
	my $A = session($node);
	my @s = map { session($node) } 1 .. 5;
	answers($A, "token_get('n', owner => 'w1', ttl => '30s')", 't');
	waits($w, $_, "token_get('n', wait => NULL)") for @s;
	my @places = $w->rows("SELECT place, pid FROM token_waiters ORDER BY place");
	answers($A, "token_renew('n', '60s', owner => 'w1')", 't');
	cmp_ok($A->{result}{took}, '<', busy(), 'at once');
	answers(
		$w,
		"(SELECT expires_at - clock_timestamp() BETWEEN '59s' AND '60s'
		  FROM token_holders WHERE name = 'n')",
		't',
		'60 s ahead');
	answers($A, "(SELECT answer FROM token_request('n', wait => NULL,
		owner => 'w1'))", 'again');
	is_deeply(
		[ $w->rows("SELECT place, pid FROM token_waiters ORDER BY place") ],
		\@places, 'places are unchanged');
	ok(!(grep { $_->done } @s), 'all of them wait');
	answers($A, "token_put('n', owner => 'w1')", 't');
	for my $s (@s)
	{
		is($s->answer, 't', 'served in turn');
		answers($s, "token_put('n')", 't');
	}
};

# What ends a wait, other than a grant.
my %stop = (
	'cancelled' => sub { $_[0]->cancel },
	'cancelled by pg_cancel_backend' =>
	  sub { $w->one("SELECT pg_cancel_backend(" . $_[0]->pid . ")") },
	'terminated' =>
	  sub { $w->one("SELECT pg_terminate_backend(" . $_[0]->pid . ")") });

subtest 'who was stopped holds nothing; the rest are served in order' => sub {
	my $A = session($node);
	my @s = map { session($node) } 0 .. 2;
	for my $holder (qw(session owner))
	{
		for my $waiter (qw(session transaction owner))
		{
			for my $how (sort keys %stop)
			{
				for my $victim (0 .. 2)
				{
					my $mix = "$holder hold, $waiter waiters, "
					  . "place " . ($victim + 1) . " $how";
					$A->query($kind{$holder}{get}->('a'));
					start_wait($s[$_], $waiter, $_) for 0 .. 2;
					$stop{$how}->($s[$victim]);
					my $e = $s[$victim]->result->{error};
					is( $e && $e->code,
						$how eq 'terminated' ? '57P01' : '57014', $mix);
					$s[$victim]->query('ROLLBACK')
					  if $how ne 'terminated' && $waiter eq 'transaction';
					until_gone($w, $s[$victim]->pid) if $how eq 'terminated';
					is( $w->one(
							"SELECT count(*) FROM token_waiters WHERE pid = "
							  . $s[$victim]->pid),
						'0',
						'it waits no more');
					my @left = grep { $_ != $victim } 0 .. 2;
					ok(!$s[$_]->done, 'the others wait') for @left;
					is($kind{$holder}{put}->($A, 'a'), 't', 'A puts');
					for my $i (@left)
					{
						is($s[$i]->answer, 't', 'granted in turn');
						is($kind{$waiter}{put}->($s[$i], $i), 't', 'put');
					}
					is($w->one("SELECT count(*) FROM token_holders"),
						'0', 'nobody holds anything');
					$s[$victim] = session($node) if $how eq 'terminated';
				}
			}
		}
	}
	nothing_left('nothing is left');
};

subtest 'the token is put and the head is cancelled at the same time' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	for my $round (1 .. (full_run() ? 500 : 100))
	{
		my $lease = $round % 2;
		$A->query($lease ? "SELECT token_get('k', ttl => '1h', owner => 'wa')"
			: "SELECT token_get('k')");
		waits($w, $B, "token_get('k', wait => NULL)");
		waits($w, $C, "token_get('k', wait => '20s', owner => 'wc')");
		# Put and cancel cross each other.
		$A->send("SELECT token_put('k'), token_put('k', owner => 'wa')");
		$B->cancel;
		$A->result;
		my $res = $B->result;
		# Either answer is right; what it says must be true.
		if ($res->{error} && $res->{error}->context =~ /while waiting/)
		{
			is($B->one("SELECT token_fence('k')"),
				undef, 'cancelled: holds nothing');
		}
		elsif ($res->{error})
		{
			# The call had answered, only the statement had not ended yet.
			$B->one("SELECT token_put('k')");
			pass('cancelled after the answer');
		}
		else
		{
			is($B->one("SELECT token_put('k')"), 't', 'granted: holds it');
		}
		is($C->answer, 't', 'C is next');
		is($C->one("SELECT token_put('k', owner => 'wc')"), 't', 'C puts');
	}
	nothing_left('nothing is left');
};

subtest 'P12: every limit on waiting counts' => sub {
	for my $holder (qw(session owner))
	{
		for my $waiter (qw(session owner))
		{
			my ($A, $B) = (session($node), session($node));
			my $owner = $waiter eq 'owner' ? ", owner => 'wb'" : '';
			my ($e, $res);
			$A->query($kind{$holder}{get}->('a'));

			$B->query("SET lock_timeout = '200ms'");
			$res = $B->send("SELECT token_get('k', wait => NULL$owner)")->result;
			$e = $res->{error};
			is($e && $e->code, '55P03', "$holder, $waiter: lock_timeout");
			between($res->{took}, 0.2, 'after 200 ms');
			like($e->text . $e->context, qr/"k"/, 'it names the token');
			my $pid = $A->pid;
			like($e->text . $e->context,
				$holder eq 'session' ? qr/\b$pid\b/ : qr/wa/, 'and its holder')
			  or diag($e->text . ' / ' . $e->context);
			answers($B, "current_setting('lock_timeout')", '200ms');

			$res = $B->send("SELECT token_get('k', wait => '100ms'$owner)")->result;
			is($res->{rows}[0][0], 'f', 'its own wait is shorter: an answer');
			between($res->{took}, 0.1, 'after 100 ms');

			$B->query("RESET lock_timeout; SET statement_timeout = '50ms'");
			$res = $B->send("SELECT token_get('k', wait => '10s'$owner)")->result;
			is($res->{error} && $res->{error}->code, '57014', 'statement_timeout');
			between($res->{took}, 0.05, 'after 50 ms');
			$B->query("RESET statement_timeout");

			answers($w, "(SELECT count(*) FROM token_waiters)", '0',
				'nobody waits');
			answers($A, $holder eq 'session' ? "token_put('k')"
				: "token_put('k', owner => 'wa')", 't');
		}
	}
	# The holder is masked for who may not see it.
	$node->safe_psql('postgres', 'CREATE ROLE other LOGIN');
	my ($A, $B) = (session($node), session($node, user => 'other'));
	answers($A, "token_get('k', owner => 'secret', ttl => '1h')", 't');
	$B->query("SET lock_timeout = '20ms'");
	my $e = $B->fails("SELECT token_get('k', wait => NULL)");
	my $pid = $A->pid;
	like($e->text . $e->context, qr/"k"/, 'the token is named');
	unlike($e->text . $e->context, qr/secret|\b$pid\b/, 'the holder is not')
	  or diag($e->text . ' / ' . $e->context);
	answers($A, "token_put('k', owner => 'secret')", 't');
};

subtest 'P13, P29: who has it, and who waits' => sub {
	$node->safe_psql('postgres',
		"CREATE ROLE app LOGIN; CREATE ROLE plain LOGIN;
		 CREATE ROLE mon LOGIN IN ROLE pg_monitor");
	my $A = session($node, user => 'app', app => 'deployer');
	my $B = session($node, user => 'app');
	answers($A, "token_get('nightly')", 't');
	answers($B, "token_get('nightly', wait => '100ms')", 'f');
	is_deeply(
		[ $B->rows("SELECT h.role, h.pid, a.application_name,
			h.acquired_at <= clock_timestamp()
			FROM token_holders h JOIN pg_stat_activity a USING (pid)
			WHERE name = 'nightly'") ],
		[ [ 'app', $A->pid, 'deployer', 't' ] ],
		'P13: the holder, with its session');
	waits($w, $B, "token_get('nightly', wait => '1h')");
	my $C = session($node, user => 'mon');
	is_deeply(
		[ $C->rows("SELECT name, place, role, pid,
			waiting_since <= clock_timestamp(),
			deadline - clock_timestamp() BETWEEN '59min' AND '60min'
			FROM token_waiters") ],
		[ [ 'nightly', '1', 'app', $B->pid, 't', 't' ] ],
		'P29: pg_monitor sees the waiter');
	answers($C, "pg_blocking_pids(" . $B->pid . ")", '{' . $A->pid . '}',
		'P29: and by whom it is blocked');
	answers($C, "(SELECT wait_event_type FROM pg_stat_activity WHERE pid = "
		  . $B->pid . ")", 'Lock', 'it waits for a lock');
	my $D = session($node, user => 'plain');
	is_deeply(
		[ $D->rows("SELECT name, role, pid FROM token_holders") ],
		[ [ '<insufficient privilege>', undef, undef ] ],
		'P29: another role does not see the holder');
	is_deeply(
		[ $D->rows("SELECT name, role, pid FROM token_waiters") ],
		[ [ '<insufficient privilege>', undef, undef ] ],
		'nor the waiter');
	is_deeply(
		[ $A->rows("SELECT name, place, pid FROM token_waiters") ],
		[ [ 'nightly', '1', $B->pid ] ],
		'A sees who waits');
	answers($A, "token_put('nightly')", 't');
	is($B->answer, 't', 'B has it');
	# Behind a lease it is asleep, too, and the activity view says so.
	$B->query("SELECT token_put('nightly')");
	answers($A, "token_get('nightly', ttl => '1h', owner => 'w1')", 't');
	waits($w, $B, "token_get('nightly', wait => NULL)");
	like(
		$w->one("SELECT wait_event_type || '/' || wait_event
			FROM pg_stat_activity WHERE pid = " . $B->pid),
		qr{^(Extension|IPC)/}, 'it waits for an event');
	is_deeply([ $C->rows("SELECT deadline FROM token_waiters") ],
		[ [undef] ], 'an endless wait has no deadline');
	answers($A, "token_put('nightly', owner => 'w1')", 't');
	is($B->answer, 't', 'B has it');
};

subtest 'a bounded wait that ends as the token comes free' => sub {
	# Whatever the answer is, it is true, and no lock of the line stays behind:
	# the next one would wait for it until that session ends.
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	my ($granted, $refused, $failed, $stranded) = (0, 0, 0, 0);
	for my $round (1 .. (full_run() ? 3000 : 400))
	{
		my $lease = $round % 2;
		my $ms = 1 + $round % 3;
		my $by_setting = $round % 5 == 0;
		$A->query($lease ? "SELECT token_get('k', ttl => '1h', owner => 'wa')"
			: "SELECT token_get('k')");
		$B->query("SET lock_timeout = '$ms ms'") if $by_setting;
		$B->send($by_setting ? "SELECT token_get('k', wait => NULL)"
			: "SELECT token_get('k', wait => '$ms ms')");
		# About as long as B waits.
		sleep $ms * (0.9 + rand(0.3)) / 1000;
		$A->query($lease ? "SELECT token_put('k', owner => 'wa')"
			: "SELECT token_put('k')");
		my $res = $B->result;
		my $t = !$res->{error} && $res->{rows}[0][0] eq 't';
		$B->query("RESET lock_timeout") if $by_setting;
		if ($t)
		{
			$granted++;
			$B->one("SELECT token_put('k')") eq 't'
			  or fail("round $round: granted, and not held");
		}
		else
		{
			$res->{error} ? $failed++ : $refused++;
			!defined $B->one("SELECT token_fence('k')")
			  or fail("round $round: not granted, and held");
		}
		$C->one("SELECT token_get('k', owner => 'wc')") eq 't'
		  && $C->one("SELECT token_put('k', owner => 'wc')") eq 't'
		  or fail("round $round: not free");
		$stranded += $w->one("SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory'");
	}
	is($stranded, 0, 'no lock was left behind');
	note("granted $granted, refused $refused, failed $failed");
	cmp_ok($granted, '>', 5, 'some were granted');
	cmp_ok($refused + $failed, '>', 5, 'some were not');
};

subtest 'waits at the limits of what a timer can count' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	for my $holder (qw(session owner))
	{
		$A->query($kind{$holder}{get}->('a'));
		waits($w, $B, "token_get('k', wait => '100 years')");
		waits($w, $C, "token_get('k', wait => '30 days', owner => 'wc')");
		is($kind{$holder}{put}->($A, 'a'), 't', 'A puts');
		is($B->answer, 't', 'B has it');
		answers($B, "token_put('k')", 't');
		is($C->answer, 't', 'C has it');
		answers($C, "token_put('k', owner => 'wc')", 't');
		# The shortest of waits ends.
		$A->query($kind{$holder}{get}->('a'));
		for my $wait ('1us', '999us', '0.4 ms', '1ms')
		{
			my $res = $B->send("SELECT token_get('k', wait => '$wait')")->result(10);
			is($res->{rows}[0][0], 'f', "$holder: wait $wait");
		}
		is($kind{$holder}{put}->($A, 'a'), 't', 'A puts');
	}
};

subtest 'waits inside of cursors, functions and savepoints' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	$node->safe_psql('postgres', q{
		CREATE FUNCTION careful(s text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			RETURN token_get('k', wait => '10s', scope => s);
		EXCEPTION WHEN query_canceled THEN
			RETURN 'canceled';
		WHEN lock_not_available THEN
			RETURN 'timeout';
		END $$});
	for my $holder (qw(session owner))
	{
		for my $scope (qw(session transaction))
		{
			my $mix = "$holder hold, $scope scope";
			# The wait is in a portal with a resource owner of its own.
			$A->query($kind{$holder}{get}->('a'));
			$B->query("BEGIN");
			$B->query("DECLARE c CURSOR FOR
				SELECT token_get('k', wait => '10s', scope => '$scope')
				FROM generate_series(1, 2)");
			$B->send("FETCH c");
			until_asleep($w, $B);
			is($kind{$holder}{put}->($A, 'a'), 't', 'A puts');
			is($B->answer, 't', "$mix: in a cursor");
			$B->query("CLOSE c");
			answers($A, "token_get('k')", 'f', 'closed, and still held');
			$B->query("COMMIT");
			answers($B, "token_put('k')", $scope eq 'session' ? 't' : 'f');

			# In a savepoint that is rolled back.
			$A->query($kind{$holder}{get}->('a'));
			$B->query("BEGIN");
			$B->query("SAVEPOINT s");
			waits($w, $B, "token_get('k', wait => '10s', scope => '$scope')");
			is($kind{$holder}{put}->($A, 'a'), 't', 'A puts');
			is($B->answer, 't', "$mix: in a savepoint");
			$B->query("ROLLBACK TO s");
			answers($A, "token_get('k', owner => 'wa')",
				$scope eq 'session' ? 'f' : 't');
			$B->query("COMMIT");
			$A->query("SELECT token_put('k', owner => 'wa')");
			$B->query("SELECT token_put('k')");

			# Under an exception block: granted, cancelled, timed out.
			$A->query($kind{$holder}{get}->('a'));
			$B->query("BEGIN");
			waits($w, $B, "careful('$scope')");
			$B->cancel;
			is($B->answer, 'canceled', "$mix: cancelled and caught");
			$B->query("SET LOCAL lock_timeout = '20ms'");
			answers($B, "careful('$scope')", 'timeout');
			answers($B, "current_setting('lock_timeout')", '20ms');
			answers($B, "token_fence('k')", undef);
			$B->query("SET LOCAL lock_timeout = 0");
			waits($w, $B, "careful('$scope')");
			is($kind{$holder}{put}->($A, 'a'), 't', 'A puts');
			is($B->answer, 'true', 'and granted');
			$B->query("COMMIT");
			answers($A, "token_get('k', owner => 'wa')",
				$scope eq 'session' ? 'f' : 't', 'held or not');
			$A->query("SELECT token_put('k', owner => 'wa')");
			$B->query("SELECT token_put('k')");
		}
	}
	is_deeply([ $A->notices, $B->notices ], [], 'nobody was warned of anything');
	is($w->one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0', 'no lock is left');
};

subtest 'two sessions of one named owner behind a lease' => sub {
	my ($H, $A, $B, $C) = map { session($node) } 1 .. 4;
	answers($H, "token_get('o', ttl => '1h', owner => 'h')", 't');
	waits($w, $A, "answer FROM token_request('o', wait => NULL, owner => 'w1')");
	waits($w, $C, "answer FROM token_request('o', wait => NULL, owner => 'w2')");
	waits($w, $B, "answer FROM token_request('o', wait => NULL, owner => 'w1')");
	answers($H, "token_put('o', owner => 'h')", 't');
	is($A->answer, 'new', 'the first is granted');
	ok(settled($B), 'the second is told although another owner is before it');
	is($B->answer, 'again', 'it holds the token, too');
	ok(!$C->done, 'the other owner waits');
	answers($B, "token_put('o', owner => 'w1')", 't');
	is($C->answer, 'new', 'and is next');
	answers($C, "token_put('o', owner => 'w2')", 't');
};

subtest 'a lost lock of a holder, a waiter, and its end' => sub {
	my ($A, $B) = (session($node), session($node));
	for my $end ("quit", "put", "discard")
	{
		$A = session($node) if $A->lost;
		answers($A, "token_get('k')", 't');
		waits($w, $B, "token_get('k', wait => NULL)");
		$A->query('SELECT pg_advisory_unlock_all()');
		ok(!$B->done(0.2), 'the head got the lock and not the token');
		$A->quit if $end eq 'quit';
		$A->query("SELECT token_put('k')") if $end eq 'put';
		$A->query("DISCARD ALL") if $end eq 'discard';
		is($B->answer, 't', "$end wakes it");
		answers($B, "token_put('k')", 't');
	}
};

subtest 'a session ends in a transaction whose token another has' => sub {
	# The end of the transaction comes after that of the session then, and must
	# leave the other's grant alone.
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	$A->query('BEGIN');
	answers($A, "token_get('k', ttl => '50ms', scope => 'transaction')", 't');
	answers($B, "token_get('k', wait => '10s')", 't', 'A\'s has lapsed');
	kill_session($w, $A);
	answers($B, "token_fence('k') IS NOT NULL", 't', 'B holds it still');
	answers($B, "token_put('k')", 't');
	# The same with the waiter served in between.
	for my $round (1 .. 50)
	{
		$A = session($node);
		$B->query('BEGIN');
		$B->query("SELECT token_get('x', scope => 'transaction')");
		waits($w, $C, "token_get('x', wait => '10s')");
		$w->one("SELECT pg_terminate_backend(" . $B->pid . ")");
		$C->answer eq 't' && $C->one("SELECT token_put('x')") eq 't'
		  or fail("round $round");
		until_gone($w, $B->pid);
		$B = $A;
	}
	is($w->one('SELECT 1'), '1', 'the server is alive');
};

nothing_left('at the end nothing is left');
$node->stop;
done_testing();
