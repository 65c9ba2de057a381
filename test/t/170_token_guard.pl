# Guarded transactions: from the check at commit to the moment at which others
# see the work, nobody that the grant excludes is granted, whatever happens.
# P35 P47 P52
#
# A commit is stopped right there by a synchronous standby that does not exist:
# the session waits after the check and the commit record, and before others
# see its work.  A cancel lets it go on.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('guard', bare => 1, init => { allows_streaming => 1 },
	conf => "max_connections = 60\nsynchronous_standby_names = 'nobody'\n"
	  . "synchronous_commit = local\n");
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock;
	CREATE TABLE work (who text);
	CREATE TABLE done (fence bigint, before bigint, who text);');
my $w = session($node, app => 'watch');

# Starts the commit of a guarded transaction, and returns once it stands still.
# guard: the arguments of token_guard; before: what to do first in it.
sub stop_in_commit
{
	my ($c, $guard, $who, $before) = @_;
	$c->query('BEGIN');
	$c->query('SET LOCAL synchronous_commit = on');
	$c->query("SELECT $before") if $before;
	$c->query("SELECT token_guard($guard)");
	$c->query("INSERT INTO work VALUES ('$who')");
	$c->send('COMMIT');
	return if ok(
		until_true(
			sub {
				$w->one(q{SELECT coalesce(wait_event, '-') FROM pg_stat_activity WHERE pid = }
					  . $c->pid) eq 'SyncRep';
			}, 20),
		"the commit of $who stands still");
	BAIL_OUT('a commit cannot be stopped here');
}

# Lets it go on.
sub go_on
{
	my ($c, $who) = @_;
	$c->cancel;
	my $res = $c->result;
	return is($res->{error} ? "$res->{error}" : $res->{tag},
		'COMMIT', "$who has committed");
}

sub sees
{
	my ($c, $who) = @_;
	return $c->one("SELECT count(*) FROM work WHERE who = '$who'");
}

sub held
{
	return $w->one("SELECT string_agg(coalesce(owner, scope), ' ' ORDER BY fence)
		FROM token_holders") // '';
}

# Kinds of holders, and how their tokens end while the commit stands still.
my %take = (
	lease => "token_get('k', owner => 'a', ttl => '1h')",
	session => "token_get('k')",
	timed => "token_get('k', ttl => '1h')",
	permit => "token_get('k', owner => 'a', ttl => '1h', capacity => 2)",
	shared => "token_get('k', owner => 'a', ttl => '1h', shared => true)",
	transaction => "token_get('k', scope => 'transaction')");
my %end = (
	lapse => sub { $_[0]->one("SELECT token_renew('k', '20ms', owner => 'a')") },
	put => sub { $_[0]->one("SELECT token_put('k', owner => 'a')") },
	'put all' => sub { $_[0]->one("SELECT token_put_all(owner => 'a')") > 0 ? 't' : 'f' },
	break => sub {
		$_[0]->one("SELECT token_break('k', fence) FROM token_holders
			WHERE name = 'k'");
	});
my %waiter = (
	session => [ "wait => NULL", "token_put('k')" ],
	lease => [ "wait => NULL, owner => 'b'", "token_put('k', owner => 'b')" ],
	place => [
		"wait => NULL, owner => 'b', keep_place => '1h'",
		"token_put('k', owner => 'b')" ]);

my $n = 0;
for my $kind (sort keys %take)
{
	for my $end (sort keys %end)
	{
		my $own = $take{$kind} =~ /owner/;
		next if !$own && $end ne 'break';
		my @waiters = $kind eq 'lease' ? sort keys %waiter : 'session';
		for my $waiter (@waiters)
		{
			subtest "pinned: $kind, $end, a $waiter waits" => sub {
				my ($A, $A2, $B) = map { session($node) } 1 .. 3;
				my $who = 'pin ' . ++$n;
				my ($get, $put) = @{ $waiter{$waiter} };
				my $in = $kind eq 'transaction' ? $take{$kind} : undef;
				$A->query("SELECT $take{$kind}") unless $in;
				stop_in_commit($A, $own ? "'k', owner => 'a'" : "'k'", $who, $in);
				my $f1 = $w->one("SELECT fence FROM token_holders");

				waits($w, $B, "(SELECT fence FROM token_request('k', $get))");
				is($end{$end}->($A2), 't', "$end, from another session");
				ok(until_true(sub { held() eq '' }), 'it shows no holder any more');
				# nor is it anybody's
				if ($own)
				{
					answers($A2, "token_renew('k', '1h', owner => 'a')", 'f');
					answers($A2, "token_fence('k', owner => 'a')", undef);
					answers($A2, "token_put('k', owner => 'a')", 'f');
					is($A2->fails("SELECT token_guard('k', owner => 'a')")->code,
						'55000', 'it cannot be guarded anew');
				}
				answers($A2, "token_break('k', $f1)", 'f');
				answers($A2, "token_get('k', owner => 'a')", 'f');
				answers($A2, "token_get('k')", 'f');
				ok(!$B->done(0.1), 'nobody is granted');
				is(sees($A2, $who), 0, 'nobody sees the work yet');

				go_on($A, $who);
				cmp_ok($B->answer(30), '>', $f1, 'then the next one is granted');
				is(sees($B, $who), 1, '.. and sees the work');
				answers($B, $put, 't');
				is(held(), '', 'nothing is left');
			};
		}
	}
}

subtest 'a commit past the ttl: the waiter waits for the commit' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	answers($A, "token_get('k', owner => 'a', ttl => '3s')", 't');
	stop_in_commit($A, "'k', owner => 'a'", 'late');
	waits($w, $B, "token_get('k', wait => NULL, owner => 'b')");
	ok(until_true(sub { held() eq '' }), 'the lease has lapsed');
	ok(!$B->done(0.5), 'the waiter is not granted');
	# its clock is not spun on, either
	my $cpu = sub {
		open my $fh, '<', '/proc/' . $B->pid . '/stat' or return 0;
		my @f = split ' ', <$fh>;
		return $f[13] + $f[14];
	};
	my $used = $cpu->();
	sleep 0.5;
	cmp_ok($cpu->() - $used, '<', 20, 'it sleeps meanwhile');
	go_on($A, 'late');
	is($B->answer(30), 't', 'granted after the commit');
	is(sees($B, 'late'), 1, 'and sees its work');
	answers($B, "token_put('k', owner => 'b')", 't');
};

subtest 'pinned grants that go on' => sub {
	my ($A, $A2) = map { session($node) } 1 .. 2;
	answers($A, "token_get('k', owner => 'a', ttl => '1h')", 't');
	stop_in_commit($A, "'k', owner => 'a'", 'on');
	answers($A2, "token_renew('k', '2h', owner => 'a')", 't');
	answers($A2, "(SELECT answer FROM token_request('k', owner => 'a'))", 'again');
	go_on($A, 'on');
	is(held(), 'a', 'held on');
	answers($A2, "token_put('k', owner => 'a')", 't');
	is(held(), '', 'and put');
};

subtest 'two sessions of one owner pin one grant' => sub {
	for my $order ([ 0, 1 ], [ 1, 0 ])
	{
		my @A = map { session($node) } 1 .. 2;
		my ($P, $B) = map { session($node) } 1 .. 2;
		my @who = map { 'two ' . ++$n } 1 .. 2;
		answers($P, "token_get('k', owner => 'a', ttl => '1h')", 't');
		stop_in_commit($A[$_], "'k', owner => 'a'", $who[$_]) for 0, 1;
		waits($w, $B, "token_get('k', wait => NULL)");
		answers($P, "token_put('k', owner => 'a')", 't');
		ok(!$B->done(0.05), 'nobody is granted');
		go_on($A[ $order->[0] ], $who[ $order->[0] ]);
		ok(!$B->done(0.2), 'nor after the first commit');
		go_on($A[ $order->[1] ], $who[ $order->[1] ]);
		is($B->answer(30), 't', 'but after the second');
		is(sees($B, $who[0]) + sees($B, $who[1]), 2, 'both can be seen');
		$B->query("SELECT token_put('k')");
	}
};

subtest 'an upgrade waits for a pinned commit of its owner' => sub {
	my ($A, $A2, $B) = map { session($node) } 1 .. 3;
	answers($A, "token_get('k', owner => 'a', ttl => '1h', shared => true)", 't');
	stop_in_commit($A, "'k', owner => 'a'", 'up');
	answers($A2, "token_get('k', owner => 'a')", 'f');
	waits($w, $A2, "(SELECT answer FROM token_request('k', owner => 'a', wait => NULL))");
	waits($w, $B, "token_get('k', wait => NULL)");
	go_on($A, 'up');
	is($A2->answer(30), 'new', 'granted after the commit');
	ok(!$B->done(0.05), 'the other one waits on');
	answers($A2, "token_put('k', owner => 'a')", 't');
	is($B->answer(30), 't', '.. until it is put');
	$B->query("SELECT token_put('k')");
};

subtest 'a permit that is pinned counts' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	answers($A, "token_get('k', capacity => 2, owner => 'a', ttl => '1h')", 't');
	answers($B, "token_get('k', capacity => 2)", 't');
	stop_in_commit($A, "'k', owner => 'a'", 'permit');
	answers($B, "token_put('k', fence => (SELECT fence FROM token_holders WHERE owner = 'a'))", 't');
	answers($C, "token_get('k', capacity => 2)", 'f');
	answers($C, "token_get('k', capacity => 3)", 'f');
	go_on($A, 'permit');
	answers($C, "token_get('k', capacity => 2)", 't');
	$B->query('SELECT token_put_all()');
	$C->query('SELECT token_put_all()');
};

subtest 'the session that pins is terminated' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	for my $get ("token_get('k')", "token_get('k', owner => 'a', ttl => '1h')")
	{
		my $who = 'dead ' . ++$n;
		my $own = $get =~ /owner/ ? ", owner => 'a'" : '';
		$A = session($node);
		answers($A, $get, 't');
		stop_in_commit($A, "'k'$own", $who);
		$B->one("SELECT token_break('k', fence) FROM token_holders");
		$B->send("SELECT token_get('k', wait => NULL)");
		kill_session($w, $A);
		is($B->answer(30), 't', 'its end lets go of the pin');
		is(sees($B, $who), 1, 'what it had committed is there');
		$B->query("SELECT token_put('k')");
	}
};

# P35: the holder can find out.
subtest 'P35' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	answers($A, "token_get('leader', owner => 'n1', ttl => '300ms')", 't');
	ok( until_true(sub {
				!defined $A->one("SELECT token_fence('leader', owner => 'n1')");
			}),
		'the lease has lapsed');
	answers($A, "token_renew('leader', '10s', owner => 'n1')", 'f');
	is($A->fails("SELECT token_guard('leader', owner => 'n1')")->code,
		'55000', 'the guard is an error');
	answers($B, "token_get('leader', owner => 'n2')", 't');
	answers($B, "token_put('leader', owner => 'n2')", 't');
};

# P47: what the fence is for.
subtest 'P47' => sub {
	my ($A, $B, $C, $D) = map { session($node) } 1 .. 4;
	my $f1 = $A->one("SELECT fence FROM token_request('k', owner => 'w1', ttl => '1h')");
	answers($A, "(SELECT answer || fence FROM token_request('k', owner => 'w1'))", "again$f1");
	answers($A, "token_renew('k', '100ms', owner => 'w1')", 't');
	answers($B, "token_get('k', owner => 'w2', ttl => '60s', wait => '30s')", 't');
	my $f2 = $B->one("SELECT token_fence('k', owner => 'w2')");
	cmp_ok($f2, '>', $f1, 'the fence has grown');
	$A->query('BEGIN');
	is($A->fails("SELECT token_guard('k', owner => 'w1')")->code, '55000', 'lost');
	$A->query('ROLLBACK; BEGIN');
	is($A->fails("SELECT token_guard('k', owner => 'w1', fence => $f1)")->code,
		'55000', 'lost, with the fence too');
	$A->query('ROLLBACK');
	$B->query('BEGIN');
	answers($B, "token_guard('k', owner => 'w2')", $f2);
	is($B->query('COMMIT')->{tag}, 'COMMIT', 'the new holder commits');
	answers($C, "token_get('m', owner => 'w3', ttl => '2s')", 't');
	$C->query('BEGIN');
	ok($C->one("SELECT token_guard('m', owner => 'w3')"), 'guarded');
	$C->query("INSERT INTO work VALUES ('P47')");
	answers($D, "token_get('m', wait => '20s', owner => 'w4')", 't');
	like($C->fails('COMMIT')->code, qr/^40/, 'the commit fails, class 40');
	is(sees($D, 'P47'), 0, 'its work is not there');
	$B->query("SELECT token_put_all(owner => 'w2'), token_put_all(owner => 'w4')");
};

# P52: one process takes it, another guards and gives it back.
subtest 'P52' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	answers($A, "token_get('k', owner => 'order-17', ttl => '60s')", 't');
	my $f1 = $A->one("SELECT token_fence('k', owner => 'order-17')");
	$A->quit;
	$B->query('BEGIN');
	answers($B, "token_guard('k', owner => 'order-17')", $f1);
	is($B->query('COMMIT')->{tag}, 'COMMIT', 'commit works');
	answers($B, "token_renew('k', '60s', owner => 'order-17')", 't');
	answers($B, "token_put('k', owner => 'order-17')", 't');
	answers($C, "token_get('k')", 't');
	$C->query("SELECT token_put('k')");
};

#
# Under load: owners that exclude each other commit in the order of their
# fences.  Whoever has passed the guard sees all that earlier holders will ever
# commit, so the largest fence that it finds is that of the row before its own.
#
{
	my $seconds = full_run() ? 30 : 6;
	my @out;
	my $until = time + $seconds;
	for my $id (1 .. 8)
	{
		my $pid = open($out[$id], '-|') // die "could not fork: $!";
		next if $pid;
		srand $id * 7919;
		my %n = (commit => 0, lost => 0, unheld => 0);
		my $said = eval {
			my $c = session($node);
			my $breaker = session($node);
			while (time < $until)
			{
				# two processes share the owner name "both"
				my $owner = $id > 6 ? 'both' : "w$id";
				my $ttl = 5 + int rand 40;
				my $own = $id % 3 ? ", owner => '$owner'" : '';
				my $f = $c->one("SELECT fence FROM token_request('load', wait => '10s',
					ttl => '$ttl ms'$own)") // next;
				$c->query('BEGIN');
				my $res = $c->send("SELECT token_guard('load'$own)")->result;
				if ($res->{error})
				{
					die $res->{error} if $res->{error}->code ne '55000';
					$n{unheld}++;
					$c->query('ROLLBACK');
					next;
				}
				$f = $res->{rows}[0][0];
				$c->query("INSERT INTO done SELECT $f, max(fence), '$id' FROM done");
				sleep rand 0.03 if rand() < 0.4;
				$breaker->query("SELECT token_break('load', $f)") if rand() < 0.1;
				$breaker->query("SELECT token_put('load'$own)")
				  if $own && rand() < 0.1;
				$res = $c->send('COMMIT')->result;
				if ($res->{error})
				{
					die $res->{error} if $res->{error}->code ne '40001';
					$n{lost}++;
				}
				else { $n{commit}++; }
				$c->query("SELECT token_put('load'$own)") if rand() < 0.7;
			}
			"$n{commit} $n{lost} $n{unheld}";
		} // "died: $@";
		syswrite STDOUT, $said;
		POSIX::_exit(0);
	}
	my (@sum, $died);
	for my $id (1 .. 8)
	{
		my $fh = $out[$id];
		my $said = join '', <$fh>;
		close $fh;
		$died = $said if $said =~ /died/;
		my @f = split ' ', $said;
		$sum[$_] += $f[$_] for $said =~ /died/ ? () : (0 .. 2);
	}
	is($died, undef, 'all clients went through');
	note("committed $sum[0], lost at commit $sum[1], lost before $sum[2]");
	cmp_ok($sum[0], '>', 50 / busy(), 'enough commits');
	cmp_ok($sum[1], '>', 5 / busy(), 'some were lost at commit');
	is($w->one('SELECT count(*) FROM done'), $sum[0],
		'what was answered to be committed is there, and nothing else');
	# A fence may have several rows, of one owner; they see each other or not.
	is( $w->one(
			'SELECT count(*) FROM (
				SELECT fence, min(before) AS lowest, max(before) AS highest,
					lag(fence) OVER (ORDER BY fence) AS expected
				FROM done GROUP BY fence) f
			WHERE expected IS NOT NULL
				AND (lowest IS DISTINCT FROM expected
					OR highest NOT IN (expected, fence))'),
		0, 'guarded transactions commit in the order of their fences')
	  || diag(join "\n", map { join ' ', map { $_ // '-' } @$_ }
		  $w->rows('SELECT * FROM done ORDER BY fence'));
	is($w->one("SELECT count(*) FROM token_waiters"), 0, 'nobody waits');
	ok(until_true(sub { held() eq '' }), 'nothing is held');
	answers($w, "token_get('load')", 't', 'and nothing is pinned');
}

done_testing();
