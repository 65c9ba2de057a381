# The line of those who wait, where several sleep on their latches: permits,
# shared holds and upgrades, places, and token_get_all.  P06 P24 P32 P59 P61
#
# The isolation tester cannot see such sleepers, so the scenarios are played
# here.  A line is a session, a call and its answer:
#
#   A: call -> answer     answers so, at once
#   A: call -> 40P01      fails with this SQLSTATE
#   A: call waits         has not returned, and sleeps in line
#   A <- answer           the call that waited returns so
#   A still               it has not returned
#   A ends | A killed     the session is closed, or terminated
#   places: B C 'w1'      token_waiters, in order; quoted: an owner's place
#   holders: A 'w1'       token_holders
#
# Calls are SQL without the SELECT.

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

my $node = new_server('line',
	conf => "max_connections = 120\ndeadlock_timeout = 200ms\n");
my $w = session($node, app => 'watch');

my %s;
my %letter;

sub client
{
	my ($letter) = @_;
	if (!$s{$letter})
	{
		$s{$letter} = session($node, app => $letter);
		$letter{ $s{$letter}->pid } = $letter;
	}
	return $s{$letter};
}

# A session's letter, or an owner's name in quotes.
sub labels
{
	my ($sql) = @_;
	return join ' ',
	  map { defined $_->[1] ? "'$_->[1]'" : $letter{ $_->[0] // '' } // '?' }
	  $w->rows($sql);
}

sub nothing_left
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$w->one("SELECT (SELECT count(*) FROM token_holders) || ' '
			|| (SELECT count(*) FROM token_waiters)"),
		'0 0', $name);
}

sub play
{
	my ($name, $text) = @_;
	subtest $name => sub {
		for (split /\n/, $text)
		{
			s/^\s+|\s+$//g;
			next if /^(#|$)/;
			if (/^(\w): (.*) waits$/)
			{
				client($1)->send("SELECT $2");
				ok(until_asleep($w, client($1)), $_);
			}
			elsif (/^(\w): (.*) -> (\S+)$/)
			{
				my $res = client($1)->send("SELECT $2")->result(30);
				is($res->{error} ? $res->{error}->code : $res->{rows}[0][0] // 'null',
					$3, $_)
				  || diag($res->{error} // '');
			}
			elsif (/^(\w) <- (\S+)$/)
			{
				my $res = client($1)->result(30);
				is($res->{error} ? $res->{error}->code : $res->{rows}[0][0],
					$2, $_)
				  || diag($res->{error} // '');
			}
			elsif (/^(\w) still$/)
			{
				ok(!client($1)->done(0.05), $_);
			}
			elsif (/^(\w) cancelled$/)
			{
				client($1)->cancel;
				is(client($1)->result->{error}->code, '57014', $_);
			}
			elsif (/^(\w) (ends|killed)$/)
			{
				my $gone = client($1);
				if ($2 eq 'ends') { $gone->quit; until_gone($w, $gone->pid); }
				else              { kill_session($w, $gone); }
				delete $s{$1};
			}
			elsif (/^places: *(.*)$/)
			{
				is(labels("SELECT pid, owner FROM token_waiters
					ORDER BY name, place"), $1, $_);
			}
			elsif (/^holders: *(.*)$/)
			{
				is(labels("SELECT pid, owner FROM token_holders
					ORDER BY name, fence"), $1, $_);
			}
			else
			{
				die "cannot play: $_";
			}
		}
		for (sort keys %s)
		{
			$s{$_}->quit;
			until_gone($w, $s{$_}->pid);
		}
		%s = ();
		nothing_left('nothing is left');
	};
	return;
}

#
# Shared holds
#
for my $c (
	"token_get('k', wait => NULL)",
	"token_get('k', wait => NULL, scope => 'session', ttl => '1h')",
	"token_get('k', wait => NULL, capacity => 2)")
{
	play("P59: readers do not starve who asks: $c", <<"E");
	A: token_get('k', shared => true) -> t
	B: token_get('k', shared => true) -> t
	C: $c waits
	D: token_get('k', shared => true) -> f
	D: token_get('k', shared => true, owner => 'wd') -> f
	D: token_get('k', wait => NULL, shared => true) waits
	E: token_get('k', wait => NULL, shared => true) waits
	places: C D E
	A: token_put('k') -> t
	C still
	B: token_put('k') -> t
	C <- t
	D still
	E still
	C: token_put('k') -> t
	D <- t
	E <- t
	holders: D E
E
}

play('an upgrade goes before all who wait', <<'E');
	A: token_get('k', shared => true) -> t
	B: token_get('k', shared => true) -> t
	C: token_get('k', wait => NULL) waits
	A: (SELECT answer FROM token_request('k', wait => NULL)) waits
	places: A C
	D: token_get('k', shared => true) -> f
	D: token_get('k', wait => NULL, shared => true) waits
	B: token_put('k') -> t
	A <- new
	C still
	A: token_put('k') -> t
	C <- t
	D still
	C: token_put('k') -> t
	D <- t
	holders: D
E

play('only one upgrade waits', <<'E');
	A: token_get('k', shared => true) -> t
	B: token_get('k', shared => true) -> t
	C: token_get('k', shared => true, owner => 'wc', ttl => '1h') -> t
	A: token_get('k', wait => NULL) waits
	# with wait '0' it is just refused, and nothing is lost
	B: token_get('k') -> f
	B: token_get('k', wait => '10ms') -> 40P01
	B: token_get('k', wait => NULL) -> 40P01
	C: token_get('k', wait => NULL, owner => 'wc') -> 40P01
	B: token_get('k', shared => true) -> t
	C: token_put('k', owner => 'wc') -> t
	A still
	B: token_put('k') -> t
	A <- t
	holders: A
	A: token_put('k') -> t
E

play('an upgrade that does not come keeps the shared hold', <<'E');
	A: token_get('k', shared => true) -> t
	B: token_get('k', shared => true) -> t
	A: (SELECT answer FROM token_request('k', wait => '20ms')) -> busy
	A: (SELECT answer FROM token_request('k', shared => true)) -> again
	A: token_get('k', wait => NULL) waits
	A cancelled
	A: (SELECT answer FROM token_request('k', shared => true)) -> again
	A: set_config('lock_timeout', '20ms', false) -> 20ms
	A: token_get('k', wait => NULL) -> 55P03
	A: set_config('lock_timeout', '0', false) -> 0
	holders: A B
	# the place of the upgrader is free again
	B: token_get('k', wait => NULL) waits
	A: token_put('k') -> t
	B <- t
E

play('an upgrader dies', <<'E');
	A: token_get('k', shared => true) -> t
	B: token_get('k', shared => true) -> t
	C: token_get('k', wait => NULL, shared => true, owner => 'wc') -> t
	D: token_get('k', wait => NULL) waits
	A: token_get('k', wait => NULL) waits
	A killed
	B: token_put('k') -> t
	D still
	C: token_put('k', owner => 'wc') -> t
	D <- t
E

play('the shared hold of an upgrader ends while it sleeps', <<'E');
	A: token_get('k', shared => true) -> t
	B: token_get('k', shared => true) -> t
	A: token_get('k', wait => NULL) waits
	C: token_get('k', wait => NULL, shared => true) waits
	B: token_break('k', (SELECT min(fence) FROM token_holders)) -> t
	A <- f
	C <- t
	A: token_fence('k') -> null
	A: token_put('k') -> f
	C: token_put('k') -> t
	B: token_put('k') -> t
	# by the clock
	A: token_get('k', shared => true, owner => 'wa', ttl => '1h') -> t
	B: token_get('k', shared => true) -> t
	A: token_get('k', wait => NULL, owner => 'wa') waits
	D: token_renew('k', '50ms', owner => 'wa') -> t
	A <- f
	holders: B
	# by a put of another session of that owner
	A: token_get('k', shared => true, owner => 'wa', ttl => '1h') -> t
	A: token_get('k', wait => NULL, owner => 'wa') waits
	D: token_put('k', owner => 'wa') -> t
	A <- f
	holders: B
E

play('an upgrade of one owner by two sessions', <<'E');
	A: token_get('k', shared => true, owner => 'w1', ttl => '1h') -> t
	B: token_get('k', shared => true) -> t
	A: (SELECT answer FROM token_request('k', wait => NULL, owner => 'w1')) waits
	C: (SELECT answer FROM token_request('k', shared => true, owner => 'w1')) -> again
	B: token_put('k') -> t
	A <- new
	C: (SELECT answer FROM token_request('k', owner => 'w1')) -> again
	C: token_put('k', owner => 'w1') -> t
	A: token_put('k', owner => 'w1') -> f
E

#
# Permits
#
play('permits: who waits for one, and when it is to be had', <<'E');
	A: token_get('k', capacity => 2) -> t
	B: token_get('k', capacity => 2) -> t
	C: token_get('k', wait => NULL, capacity => 2) waits
	D: token_get('k', wait => NULL, capacity => 2) waits
	B: token_put('k') -> t
	C <- t
	D still
	A killed
	D <- t
	holders: C D
E

play('a capacity of one waits until it is alone', <<'E');
	A: token_get('k', capacity => 2) -> t
	B: token_get('k', capacity => 2) -> t
	C: token_get('k', wait => NULL) waits
	# there is room for these, but not before it
	D: token_get('k', capacity => 9) -> f
	D: token_get('k', wait => NULL, capacity => 9) waits
	A: token_put('k') -> t
	C still
	B: token_put('k') -> t
	C <- t
	D still
	C: token_put('k') -> t
	D <- t
E

play('behind one that has it alone several come in together', <<'E');
	A: token_get('k') -> t
	B: token_get('k', wait => NULL, capacity => 2) waits
	C: token_get('k', wait => NULL, capacity => 2) waits
	D: token_get('k', wait => NULL, capacity => 3) waits
	A: token_put('k') -> t
	B <- t
	C <- t
	D still
	B: token_put('k') -> t
	D <- t
	holders: C D
E

play('a permit lapses', <<'E');
	A: token_get('k', capacity => 2, ttl => '1h') -> t
	B: token_get('k', capacity => 2) -> t
	C: token_get('k', wait => NULL, capacity => 2) waits
	A: token_renew('k', '50ms') -> t
	C <- t
	A: token_put('k') -> f
E

play('P32: three session tokens and one of two permits', <<'E');
	A: token_get('x') -> t
	A: token_get('y') -> t
	A: token_get('z') -> t
	A: token_get('p', capacity => 2) -> t
	B: token_get('p', capacity => 2) -> t
	C: token_get('x', wait => NULL) waits
	D: token_get('y', wait => NULL) waits
	E: token_get('z', wait => NULL) waits
	F: token_get('p', wait => NULL, capacity => 2) waits
	A killed
	C <- t
	D <- t
	E <- t
	F <- t
	holders: B F C D E
E

#
# Places
#
play('P06: queueing without a connection', <<'E');
	H: token_get('k', owner => 'h', ttl => '60s') -> t
	A: (SELECT answer || place FROM token_request('k', owner => 'w2', keep_place => '1h')) -> queued1
	B: (SELECT answer || place FROM token_request('k', owner => 'w3', keep_place => '1h')) -> queued2
	A ends
	B ends
	places: 'w2' 'w3'
	C: token_put('k', owner => 'h') -> t
	D: token_get('k') -> f
	D: token_get('k', owner => 'w3', keep_place => '1h') -> f
	D: token_get('k', owner => 'w2', keep_place => '1h') -> t
	D: token_put('k', owner => 'w2') -> t
	D: token_get('k', owner => 'w3', keep_place => '1h') -> t
	D: token_put('k', owner => 'w3') -> t
	# one that is not asked for again
	D: token_get('k', owner => 'w2') -> t
	D: token_get('k', owner => 'w3', keep_place => '50ms') -> f
	E: token_get('k', wait => '20s') waits
	D: token_put('k', owner => 'w2') -> t
	E <- t
	places:
E

for my $holder ([ "", "token_put('k')" ],
	[ ", owner => 'h', ttl => '1h'", "token_put('k', owner => 'h')" ])
{
	my ($how, $put) = @$holder;
	play("a place before a waiting session ($put)", <<"E");
	H: token_get('k'$how) -> t
	P: token_get('k', owner => 'w1', keep_place => '1h') -> f
	B: token_get('k', wait => NULL) waits
	places: 'w1' B
	H: $put -> t
	B still
	G: token_get('k') -> f
	P: token_get('k', owner => 'w1', keep_place => '1h') -> t
	B still
	P: token_put('k', owner => 'w1') -> t
	B <- t
E
	play("a place behind a waiting session ($put)", <<"E");
	H: token_get('k'$how) -> t
	B: token_get('k', wait => NULL) waits
	P: token_get('k', owner => 'w1', keep_place => '1h') -> f
	C: token_get('k', wait => NULL) waits
	places: B 'w1' C
	H: $put -> t
	B <- t
	P: token_get('k', owner => 'w1', keep_place => '1h') -> f
	B: token_put('k') -> t
	C still
	P: token_get('k', owner => 'w1', keep_place => '1h') -> t
	P: token_put('k', owner => 'w1') -> t
	C <- t
E
	play("a place lapses before a waiting session ($put)", <<"E");
	H: token_get('k'$how) -> t
	P: token_get('k', owner => 'w1', keep_place => '1h') -> f
	B: token_get('k', wait => NULL) waits
	P: token_get('k', owner => 'w1', keep_place => '200ms') -> f
	H: $put -> t
	B <- t
	P: token_get('k', owner => 'w1') -> f
	places:
E
	play("sessions that sleep on places ($put)", <<"E");
	H: token_get('k'$how) -> t
	A: token_get('k', wait => NULL, owner => 'wa', keep_place => '1h') waits
	B: token_get('k', wait => NULL) waits
	C: token_get('k', wait => NULL, owner => 'wc', keep_place => '1h') waits
	D: token_get('k', wait => NULL) waits
	H: $put -> t
	A <- t
	B still
	A: token_put('k', owner => 'wa') -> t
	B <- t
	C still
	B: token_put('k') -> t
	C <- t
	D still
	C: token_put('k', owner => 'wc') -> t
	D <- t
E
	play("a place is kept when its session gives up ($put)", <<"E");
	H: token_get('k'$how) -> t
	A: (SELECT answer || place FROM token_request('k', wait => '20ms', owner => 'w1', keep_place => '1h')) -> queued1
	B: token_get('k', wait => NULL) waits
	A: token_get('k', wait => NULL, owner => 'w1', keep_place => '1h') waits
	A cancelled
	places: 'w1' B
	A: token_get('k', wait => NULL, owner => 'w1', keep_place => '1h') waits
	A killed
	places: 'w1' B
	H: $put -> t
	B still
	C: token_get('k', owner => 'w1') -> t
	C: token_put('k', owner => 'w1') -> t
	B <- t
E
}

# Asked again in that time it keeps its turn, whether it then keeps its place or
# not.
play('a place, and then a wait that keeps none', <<'E');
	H: token_get('k') -> t
	P: token_get('k', owner => 'w1', keep_place => '1h') -> f
	B: token_get('k', wait => NULL) waits
	P: token_get('k', wait => '20ms', owner => 'w1') -> f
	places: 'w1' B
	P: token_get('k', wait => NULL, owner => 'w1') waits
	places: 'w1' B
	P cancelled
	places: 'w1' B
	P: token_get('k', wait => NULL, owner => 'w1') waits
	H: token_put('k') -> t
	P <- t
	B still
	P: token_put('k', owner => 'w1') -> t
	B <- t
	places:
E

play('a place lapses during a wait that keeps none', <<'E');
	H: token_get('k') -> t
	P: token_get('k', owner => 'w1', keep_place => '20ms') -> f
	P: token_get('k', wait => '100ms', owner => 'w1') -> f
	places:
	H: token_put('k') -> t
E

play('two sessions on one place', <<'E');
	H: token_get('k', owner => 'h', ttl => '1h') -> t
	A: token_get('k', wait => NULL, owner => 'w1', keep_place => '1h') waits
	B: token_get('k', wait => NULL, owner => 'w1', keep_place => '1h') waits
	C: token_get('k', wait => NULL) waits
	H: token_put('k', owner => 'h') -> t
	A <- t
	B <- t
	C still
	A: token_put('k', owner => 'w1') -> t
	C <- t
	places:
E

play('many sessions of one owner, on its place and in line', <<'E');
	H: token_get('k') -> t
	P: token_get('k', owner => 'w1', keep_place => '1h') -> f
	A: token_get('k', wait => NULL, owner => 'w1') waits
	B: token_get('k', wait => NULL) waits
	C: token_get('k', wait => NULL, owner => 'w1') waits
	D: token_get('k', wait => NULL, owner => 'w1', keep_place => '1h') waits
	H: token_put('k') -> t
	A <- t
	C <- t
	D <- t
	B still
	A: token_put('k', owner => 'w1') -> t
	B <- t
	places:
E

play('places for permits', <<'E');
	A: token_get('k', owner => 'w1', capacity => 2) -> t
	A: token_get('k', owner => 'w2', capacity => 2) -> t
	A: token_get('k', owner => 'w3', capacity => 2, keep_place => '1h') -> f
	A: token_get('k', owner => 'w4', capacity => 2, keep_place => '1h') -> f
	A: token_put('k', owner => 'w1') -> t
	A: token_get('k', owner => 'w4', capacity => 2, keep_place => '1h') -> f
	A: token_get('k', owner => 'w3', capacity => 2, keep_place => '1h') -> t
	A: token_get('k', owner => 'w4', capacity => 2, keep_place => '1h') -> f
	A: token_put('k', owner => 'w2') -> t
	A: token_get('k', owner => 'w4', capacity => 2, keep_place => '1h') -> t
	A: token_put_all(owner => 'w3') -> 1
	A: token_put_all(owner => 'w4') -> 1
E

#
# token_get_all
#
for my $owner ('', ", owner => 'w1'")
{
	play("token_get_all gives back what it got$owner", <<"E");
	C: token_get('b') -> t
	A: token_get_all('{a,b,c}', wait => '200ms'$owner) -> f
	D: token_get('a') -> t
	D: token_put('a') -> t
	A: token_get_all('{c,b,a}', wait => NULL$owner) waits
	D: token_get('a') -> f
	D: token_get('c') -> t
	A cancelled
	D: token_get('a') -> t
	D: token_put('a') -> t
	D: token_put('c') -> t
	A: token_get_all('{c,b,a}', wait => NULL$owner) waits
	B: token_get('a', wait => NULL) waits
	A killed
	B <- t
	holders: B C
	B: token_put('a') -> t
	C: token_get_all('{a,b}') -> t
E
}

play('token_get_all in a deadlock that is real', <<'E');
	A: token_get('b') -> t
	B: token_get('a') -> t
	B: set_config('deadlock_timeout', '1h', false) -> 1h
	B: token_get('b', wait => NULL) waits
	# out of order, by another hold
	A: token_get_all('{a,c}', wait => NULL) -> 40P01
	holders: B A
	A: token_put('b') -> t
	B <- t
E

# Runs each in a process of its own, and returns what they say.
sub in_processes
{
	my (@code) = @_;
	my @out;

	for my $i (0 .. $#code)
	{
		my $pid = open($out[$i], '-|') // die "could not fork: $!";
		next if $pid;
		my $said = eval { $code[$i]->() } // "died: $@";
		syswrite STDOUT, $said;
		POSIX::_exit(0);
	}
	return map { my $fh = $_; local $/; my $all = <$fh>; close $fh; $all } @out;
}

# P24: lists in different orders.
{
	my $rounds = full_run() ? 1000 : 300;
	my $loop = sub {
		my ($list, $owner) = @_;
		my $o = defined $owner ? ", owner => '$owner'" : '';
		return sub {
			my $c = session($node);
			my $bad = 0;
			for (1 .. $rounds)
			{
				$bad++
				  if $c->one("SELECT token_get_all('$list', wait => '60s'$o)") ne 't';
				# while both are held, nobody else has either
				$bad++
				  if $c->one("SELECT count(*) FROM token_holders
					WHERE name IN ('a', 'b')
					AND (pid, owner) IS DISTINCT FROM (pg_backend_pid(), "
					  . (defined $owner ? "'$owner'" : 'NULL') . ')') != 0;
				$bad++ if $c->one("SELECT token_put_all('{a,b,z}'$o)") != 2;
			}
			return $bad;
		};
	};
	my @r = in_processes($loop->('{b,a,a}'), $loop->('{a,b}'),
		$loop->('{b,a}', 'w1'), $loop->('{a,b,b}', 'w2'));
	is("@r", '0 0 0 0', 'P24: lists in different orders: all answered t');
	nothing_left('P24: nothing is left');
}

# P61: holders and waiters die, and no permit is lost.
{
	my $n = full_run() ? 50 : 30;
	my @c = map { session($node) } 1 .. $n;
	my $most = 0;
	$_->send("SELECT token_get('s', wait => NULL, capacity => 5)") for @c;
	while (@c)
	{
		my $victim = splice @c, int(rand @c), 1;
		sleep rand 0.01;
		$victim->drop if rand() < 0.5;
		$w->one('SELECT pg_terminate_backend(' . $victim->pid . ')');
		my $held = $w->one("SELECT count(*) FROM token_holders WHERE name = 's'");
		$most = $held if $held > $most;
		until_gone($w, $victim->pid) if rand() < 0.3;
	}
	is($most, 5, 'P61: never more than five permits');
	ok( until_true(
			sub {
				$w->one("SELECT (SELECT count(*) FROM token_holders)
					+ (SELECT count(*) FROM token_waiters)") == 0;
			}),
		'P61: no holder and no waiter is left');
	my @six = map { session($node) } 1 .. 6;
	is( join(' ', map { $_->one("SELECT token_get('s', capacity => 5)") } @six),
		't t t t t f',
		'P61: five new ones have a permit, the sixth has none');
}

done_testing();
