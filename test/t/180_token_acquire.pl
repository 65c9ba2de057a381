# CALL token_acquire waits without a snapshot; token_break frees a token from
# sessions that stand idle in their transactions.  P17

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('acquire',
	conf => "max_connections = 60\nautovacuum = off\ndeadlock_timeout = 300ms\n");
my $w = session($node, app => 'watch');

sub xmin_of
{
	my ($c) = @_;
	return $w->one("SELECT coalesce(backend_xmin::text, 'none') || ' '
		|| coalesce(backend_xid::text, 'none') || ' ' || state
		FROM pg_stat_activity WHERE pid = " . $c->pid);
}

sub nothing_left
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$w->one("SELECT (SELECT count(*) FROM token_holders) || ' '
			|| (SELECT count(*) FROM token_waiters)"), '0 0', 'nothing is left');
}

#
# token_acquire
#
my @holders = (
	[ "token_get('mig')", "token_put('mig')" ],
	[ "token_get('mig', owner => 'a', ttl => '1h')", "token_put('mig', owner => 'a')" ],
	[ "token_get('mig', shared => true)", "token_put('mig')" ],
	[ "token_get('mig', capacity => 1, ttl => '1h')", "token_put('mig')" ]);
my @calls = (
	[ "'mig'", "token_put('mig')" ],
	[ "'mig', wait => '1h', owner => 'b'", "token_put('mig', owner => 'b')" ],
	[ "'mig', capacity => 2", "token_put('mig')" ]);

for my $h (@holders)
{
	for my $call (@calls)
	{
		subtest "P17: $h->[0], CALL token_acquire($call->[0])" => sub {
			my ($A, $B, $C, $D) = map { session($node) } 1 .. 4;
			$w->query('CREATE TABLE t AS SELECT g AS x FROM generate_series(1, 2000) g');
			answers($A, $h->[0], 't');
			# the head of the line, and one behind it
			for my $c ($B, $C)
			{
				$c->send("CALL token_acquire($call->[0])");
				ok(until_asleep($w, $c), 'it waits');
			}
			is(xmin_of($_), 'none none active', 'without a snapshot') for $B, $C;

			is($A->query('CREATE INDEX CONCURRENTLY i ON t (x)')->{tag},
				'CREATE INDEX', 'an index is built meanwhile');
			is($w->one("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass"),
				't', 'and is valid');
			$w->query('DELETE FROM t');
			$w->query('VACUUM t');
			is($w->one("SELECT pg_relation_size('t')"), 0, 'vacuum passes by');
			ok(!$B->done && !$C->done, 'they wait on');

			answers($A, $h->[1], 't');
			my @r = @{ $B->result(30)->{rows}[0] };
			is($r[0], 't', 'granted');
			is($r[1], $w->one("SELECT max(fence) FROM token_holders"), 'with its fence')
			  if $call->[0] !~ /capacity/;
			answers($B, $call->[1], 't');
			is($C->result(30)->{rows}[0][0], 't', 'and so is the next')
			  if $call->[0] !~ /owner/;
			$C->result(30);
			$C->query("SELECT $call->[1]");
			$w->query('DROP TABLE t');
			nothing_left();
		};
	}
}

subtest 'in contrast: token_get waits with a snapshot' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	answers($A, "token_get('mig')", 't');
	waits($w, $B, "token_get('mig', wait => NULL)");
	like(xmin_of($B), qr/^\d+ /, 'so the test can tell');
	$A->query("SELECT token_put('mig')");
	$B->answer;
	$B->query("SELECT token_put('mig')");
};

subtest 'who was stopped holds nothing' => sub {
	for my $owner ('', ", owner => 'b'")
	{
		my ($A, $B) = map { session($node) } 1 .. 2;
		answers($A, "token_get('k')", 't');
		$B->send("CALL token_acquire('k'$owner)");
		until_asleep($w, $B);
		$B->cancel;
		my $e = $B->result->{error};
		is($e->code, '57014', 'cancelled');
		like($e->context, qr/waiting for token "k"/, 'the error names the token');
		is($B->one('SELECT 1'), 1, 'the session goes on');
		$B->query("SET lock_timeout = '50ms'");
		is($B->fails("CALL token_acquire('k'$owner)")->code, '55P03', 'lock_timeout');
		$B->query("RESET lock_timeout");
		my $r = $B->query("CALL token_acquire('k', wait => '100ms'$owner)");
		is($r->{rows}[0][0], 'f', 'an answer when the wait was too short');
		cmp_ok($r->{took}, '>=', 0.1, 'not early');
		$B->send("CALL token_acquire('k'$owner)");
		until_asleep($w, $B);
		kill_session($w, $B);
		answers($A, "token_put('k')", 't');
		nothing_left();
	}
};

subtest 'deadlocks are found, without a snapshot too' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	answers($A, "token_get('a')", 't');
	answers($B, "token_get('b')", 't');
	$A->send("CALL token_acquire('b')");
	until_asleep($w, $A);
	$B->send("CALL token_acquire('a')");
	ok(until_true(sub { $A->done || $B->done }), 'one is told');
	my ($victim, $other) = $A->done ? ($A, $B) : ($B, $A);
	is($victim->result->{error}->code, '40P01', 'a deadlock');
	$victim->query('SELECT token_put_all()');
	is($other->result->{rows}[0][0], 't', 'the other one is granted');
	$other->query('SELECT token_put_all()');
};

# One implicit transaction of several protocol messages.
sub pipeline
{
	my ($c, @sql) = @_;
	my $data = '';
	my $message = sub { $_[0] . pack('N', 4 + length $_[1]) . $_[1] };
	for (@sql)
	{
		$data .= $message->('P', "\0$_\0" . pack('n', 0));
		$data .= $message->('B', "\0\0" . pack('nnn', 0, 0, 0));
		$data .= $message->('E', "\0" . pack('N', 0));
	}
	$c->{sql} = "@sql";
	$c->{busy} = 1;
	$c->{sent_at} = time;
	$c->{result} = PgClient::_empty_result();
	$c->_write($data . $message->('S', ''));
	return $c->result;
}

subtest 'it never commits what the caller has done before' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	$w->query('CREATE TABLE p (i int)');
	answers($A, "token_get('busy')", 't');
	for my $name ('busy', 'x')
	{
		my $res = pipeline($B, 'INSERT INTO p VALUES (1)', "CALL token_acquire('$name')");
		is($res->{error} && $res->{error}->code, '25001', "a pipeline: $name");
		ok($res->{error}->hint, 'with a hint');
	}
	is(pipeline($B, "CALL token_acquire('x')")->{error}, undef, 'alone it works');
	answers($B, "token_put('x')", 't');
	is($w->one('SELECT count(*) FROM p'), 0, 'nothing was committed');
	$A->query("SELECT token_put('busy')");
	$w->query('DROP TABLE p');
	nothing_left();
};

#
# token_break
#
subtest 'break: logged, with who broke what' => sub {
	my ($A, $B) = map { session($node) } 1 .. 2;
	my $log = -s $node->logfile;
	my $f = $A->one("SELECT fence FROM token_request('k')");
	answers($B, "token_break('k', $f)", 't');
	my $role = $B->one('SELECT current_user');
	my $text = substr slurp_file($node->logfile), $log;
	like($text, qr/LOG:\s+token "k" was broken by role "$role"/, 'a line');
	like($text, qr/DETAIL:.*process @{[$A->pid]} of role "$role" with fence $f/, 'its detail');
	$f = $A->one("SELECT fence FROM token_request('k', owner => 'server a')");
	answers($B, "token_break('k', $f)", 't');
	$text = substr slurp_file($node->logfile), $log;
	like($text, qr/DETAIL:.*owner "server a" of role "$role" with fence $f/, 'of an owner');
	answers($B, "token_break('k', $f)", 'f');
};

subtest 'break: at any moment of its waiters' => sub {
	my $rounds = full_run() ? 1000 : 200;
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	my ($bad, $slow) = (0, 0);
	for my $i (1 .. $rounds)
	{
		my $kind = $i % 3;
		$A->query('BEGIN');
		my $f = $A->one("SELECT fence FROM token_request('k'"
			  . ($kind == 1 ? ", scope => 'transaction'" : '') . ')');
		# the breaker comes before, while and after they get in line
		$B->send("SELECT token_get('k', wait => '20s'"
			  . ($kind == 2 ? ", owner => 'b'" : '') . ')');
		$C->send("SELECT token_get('k', wait => '20s')");
		sleep rand 0.002;
		my $broken = $w->one("SELECT token_break('k', $f)");
		$bad++ if $broken ne 't';
		# whoever is first; the other follows
		if (!until_true(sub { $B->done || $C->done }, 30))
		{
			fail('one is granted');
			last;
		}
		my ($one, $two) = $B->done ? ($B, $C) : ($C, $B);
		$bad++ if $one->answer ne 't';
		$slow++ if $one->{result}{took} > 5;
		$bad++ if $two->done;
		$one->query("SELECT token_put('k'), token_put('k', owner => 'b')");
		$bad++ if $two->answer ne 't';
		$two->query("SELECT token_put('k'), token_put('k', owner => 'b')");
		$A->query('COMMIT');
		$bad++ if $A->one("SELECT token_put('k')") ne 'f';
	}
	is($bad, 0, "$rounds breaks");
	is($slow, 0, 'none was slow');
	nothing_left();
};

subtest 'break: a real deadlock afterwards is still found' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	for (1 .. 10)
	{
		$A->query('BEGIN');
		my $f = $A->one("SELECT fence FROM token_request('k')");
		waits($w, $B, "token_get('k', wait => NULL)");
		answers($w, "token_break('k', $f)", 't');
		is($B->answer(30), 't', 'the waiter has it');
		answers($C, "token_get('n')", 't');
		waits($w, $B, "token_get('n', wait => NULL)");
		$C->send("SELECT token_get('k', wait => NULL)");
		ok(until_true(sub { $B->done || $C->done }, 30), 'found');
		my ($victim, $other) = $B->done ? ($B, $C) : ($C, $B);
		is($victim->result->{error} && $victim->result->{error}->code, '40P01', 'one victim');
		$victim->query('SELECT token_put_all()');
		is($other->answer(30), 't', 'the other one goes on');
		$other->query('SELECT token_put_all()');
		$A->query('ROLLBACK');
	}
	nothing_left();
};

done_testing();
