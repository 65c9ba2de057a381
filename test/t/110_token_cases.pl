# Field cases of tokens that need sessions which end, stand still or are
# killed.  P01 P07 P14 P26 P31 P32 P36 P43 P48 P49 P51 P67 P68 P69 P101

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server(
	'cases',
	conf => "max_connections = 100\nlog_min_messages = warning\n"
	  . "max_prepared_transactions = 5\n");
my $w = session($node, app => 'watch');

# When the grant was given, as far as a client can tell: before the call was
# sent, and after the answer.  The truth lies between.
sub timed
{
	my ($client, $sql) = @_;
	my $res = $client->send("SELECT $sql")->result;
	die $res->{error} if $res->{error};
	return ($client->{sent_at}, $res->{at}, @{ $res->{rows}[0] });
}

# One test: at that time a lease was over, and not for long.  before and after
# are those of timed().
sub just_over
{
	my ($at, $ttl, $before, $after) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return between($at - $before, $ttl, 'when the lease is over, and soon after',
		0.3 + $after - $before);
}

subtest 'P01: taken on one server connection, given back on another' => sub {
	my $A = session($node);
	answers($A, "token_get('mig', owner => 'deploy-7', ttl => '60s')", 't');
	$A->quit;
	my ($B, $C) = (session($node), session($node));
	answers($B, "token_renew('mig', '60s', owner => 'deploy-7')", 't');
	answers($B, "token_put('mig', owner => 'deploy-7')", 't');
	answers($C, "token_get('mig', owner => 'deploy-8', ttl => '60s')", 't');
	answers($B, "token_put('mig', owner => 'deploy-8')", 't');
};

subtest 'P07: no open transaction needed' => sub {
	my ($A, $B) = (session($node), session($node));
	$A->query("SET idle_in_transaction_session_timeout = '300ms'");
	$A->query("SET lock_timeout = '300ms'");
	answers($A, "token_get('k', owner => 'w1', ttl => '60s')", 't');
	# Idle for longer than the timeout, which is the point here.
	sleep(full_run() ? 5 : 1);
	answers($B, "token_get('k')", 'f');
	answers($A, "token_put('k', owner => 'w1')", 't');
	answers($B, "token_get('k')", 't', 'free as soon as the put has returned');
	$B->quit;
	until_gone($w, $B->pid);
};

subtest 'P14: the release never came' => sub {
	my ($A, $B) = (session($node), session($node));
	my ($before, $after) =
	  timed($A, "token_get('k', owner => 'w1', ttl => '2s')");
	waits($w, $B, "token_get('k', wait => '10s')");
	is($B->answer, 't', 'B has it');
	just_over($B->{result}{at}, 2, $before, $after);
	$B->quit;
	until_gone($w, $B->pid);
};

subtest 'P26: one name, two databases' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE db1');
	$node->safe_psql('postgres', 'CREATE DATABASE db2');
	my ($A, $B) = map { session($node, dbname => $_) } qw(db1 db2);
	for my $C ($A, $B)
	{
		$C->query('CREATE EXTENSION tokenlock');
	}
	answers($A, "token_get('mig')", 't');
	answers($B, "token_get('mig')", 't');
	answers($A, "token_get('l', owner => 'w1', ttl => '1h')", 't');
	answers($B, "token_get('l', owner => 'w1', ttl => '1h')", 't');
	for my $C ($A, $B)
	{
		is_deeply(
			[ $C->rows("SELECT name, pid FROM token_holders ORDER BY name") ],
			[ [ 'l', $C->pid ], [ 'mig', $C->pid ] ],
			'its own rows only');
	}
	my $C = session($node, dbname => 'db2');
	waits($B, $C, "token_get('mig', wait => NULL)");
	answers($A, "(SELECT count(*) FROM token_waiters)", '0',
		'nor the other database\'s waiters');
	$B->query("SELECT token_put('mig')");
	is($C->answer, 't', 'the put reaches the waiter of its own database');
	$_->quit for $A, $B, $C;

	# Tokens go with their database; leases, too.
	until_gone($w, map { $_->pid } $A, $B, $C);
	$node->safe_psql('postgres', "DROP DATABASE db1");
	$node->safe_psql('postgres', "CREATE DATABASE db1 TEMPLATE db2");
	$A = session($node, dbname => 'db1');
	answers($A, "(SELECT count(*) FROM token_holders)", '0',
		'a copied database has no holders');
	answers($A, "token_get('l')", 't');
	$A->quit;
	until_gone($w, $A->pid);
	$node->safe_psql('postgres', "DROP DATABASE $_") for qw(db1 db2);
};

subtest 'P31: the client is gone, its backend is not' => sub {
	my ($A, $B) = (session($node), session($node));
	my ($before, $after) = timed($A, "token_get('k', ttl => '1s')");
	# A stands still: it neither calls nor reads anything from here on.
	waits($w, $B, "token_get('k', wait => '10s')");
	is($B->answer, 't', 'B has it');
	just_over($B->{result}{at}, 1, $before, $after);
	# A goes on.
	answers($A, "token_fence('k')", undef, 'A can see that it lost it');
	answers($A, "token_put('k')", 'f', 'A has nothing to put');
	answers($B, "token_put('k')", 't');
};

subtest 'P32: what a killed session held' => sub {
	my $A = session($node);
	my @names = qw(x y z);
	answers($A, "token_get('$_')", 't') for @names;
	$A->query('BEGIN');
	answers($A, "token_get('t', scope => 'transaction')", 't');
	push @names, 't';
	my @waiters = map { session($node) } @names;
	for my $i (0 .. $#names)
	{
		waits($w, $waiters[$i], "token_get('$names[$i]', wait => NULL)");
	}
	$w->one("SELECT pg_terminate_backend(" . $A->pid . ")");
	for my $i (0 .. $#names)
	{
		ok($waiters[$i]->done(5), "the waiter for $names[$i] is served");
		is($waiters[$i]->answer, 't', 'granted');
	}
	answers($w, "(SELECT count(*) FROM token_holders WHERE pid = "
		  . $A->pid . ")", '0', 'no row with the dead pid');
	$_->quit for @waiters;
	until_gone($w, map { $_->pid } @waiters);
	answers($w, "(SELECT count(*) FROM token_holders)", '0', 'all is free');
};

subtest 'session end of every kind wakes the waiter' => sub {
	my %end = (
		'ends' => sub { $_[0]->quit },
		'is dropped' => sub { $_[0]->drop },
		'is terminated' =>
		  sub { $w->one("SELECT pg_terminate_backend(" . $_[0]->pid . ")") },
		'meets idle_in_transaction_session_timeout' => sub {
			$_[0]->query('ROLLBACK') if $_[1] ne 'session';
			$_[0]->query("SET idle_in_transaction_session_timeout = '50ms'");
			$_[0]->query('BEGIN');
			$_[0]->query("SELECT token_get('k', scope => 'transaction')")
			  if $_[1] ne 'session';
		},
		'lost its locks and ends' => sub {
			$_[0]->query('SELECT pg_advisory_unlock_all()');
			$_[0]->quit;
		});
	for my $scope (qw(session transaction))
	{
		for my $how (sort keys %end)
		{
			my ($A, $B) = (session($node), session($node));
			$A->query('BEGIN') if $scope eq 'transaction';
			$A->query("SELECT token_get('k', scope => '$scope')");
			# For the timeout A has to start a transaction with the waiter
			# not yet there: it would be granted in between.
			if ($how =~ /timeout/)
			{
				$end{$how}->($A, $scope);
				$B->send("SELECT token_get('k', wait => '10s')");
			}
			else
			{
				waits($w, $B, "token_get('k', wait => '10s')");
				$end{$how}->($A, $scope);
			}
			is($B->answer, 't', "$scope hold: A $how");
			cmp_ok($B->{result}{took}, '<', 5 * busy(), 'soon');
			$B->quit;
			until_gone($w, $B->pid);
		}
	}
	answers($w, "(SELECT count(*) FROM token_holders)", '0', 'all is free');
};

subtest 'P36: a dump carries no holders' => sub {
	my ($A, $C) = (session($node), session($node));
	answers($A, "token_get('k')", 't');
	answers($A, "token_get('l', owner => 'w1', ttl => '1h')", 't');
	my $dump = $node->basedir . '/p36.sql';
	$node->command_ok(
		[ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok(
		[
			'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			$node->connstr('restored')
		],
		'restored');
	my $B = session($node, dbname => 'restored');
	answers($B, "token_get('k')", 't');
	answers($B, "token_get('l')", 't');
	cmp_ok($B->one("SELECT token_fence('l')"),
		'>', $A->one("SELECT token_fence('l', owner => 'w1')"),
		'the restored database goes on with larger fences');
	answers($A, "token_put('l', owner => 'w1')", 't');
	$_->quit for $A, $B, $C;
	until_gone($w, map { $_->pid } $A, $B, $C);
	$node->safe_psql('postgres', 'DROP DATABASE restored');
};

subtest 'P43: work longer than the lease' => sub {
	my ($A, $B) = (session($node), session($node));
	my $rounds = full_run() ? 16 : 6;
	for my $call ("token_renew('k', owner => 'w1')",
		"token_get('k', owner => 'w1')")
	{
		answers($A, "token_get('k', owner => 'w1', ttl => '2s')", 't');
		my $fence = $A->one("SELECT token_fence('k', owner => 'w1')");
		waits($w, $B, "token_get('k', wait => '20s')");
		my ($all, $before, $after, $answer) = (1);
		for (1 .. $rounds)
		{
			# The pace of the worker; a good part of the lease.
			sleep 0.5;
			($before, $after, $answer) = timed($A, $call);
			$all &&= $answer eq 't';
			$all &&= $fence
			  == ($A->one("SELECT token_fence('k', owner => 'w1')") // 0);
		}
		ok($all, "kept by $call, with the same fence");
		ok(!$B->done, 'B waits all the time');
		is($B->answer, 't', 'B has it when A stops');
		just_over($B->{result}{at}, 2, $before, $after);
		answers($B, "token_put('k')", 't');
	}
};

subtest 'P48: taken, and only then given an end' => sub {
	my $n = full_run() ? 1000 : 150;
	srand(48);
	# Each client breaks off at a random moment round the answer.
	for my $i (1 .. $n)
	{
		my $C = session($node);
		$C->send("SELECT token_get('k$i', owner => 'w$i', ttl => '500ms')");
		$C->done(rand() < 0.5 ? 0 : rand(0.004));
		$C->drop;
	}
	ok( until_true(
			sub {
				$w->one("SELECT count(*) = 0 FROM pg_stat_activity
					WHERE application_name = 'PgClient'") eq 't';
			}),
		'all clients are gone');
	# An end that was set, not the default of a minute.
	ok( until_true(
			sub { $w->one("SELECT count(*) FROM token_holders") == 0 }, 20),
		'and so are their leases, in time')
	  or diag($w->one("SELECT count(*) FROM token_holders"));
	answers($w, "(SELECT count(*) FROM token_waiters)", '0');
};

subtest 'P49: losers change nothing' => sub {
	my ($A, $B, $C) = map { session($node) } 1 .. 3;
	my ($before, $after) =
	  timed($A, "token_get('k', owner => 'a', ttl => '2s')");
	# As seconds; the display of a point in time may move by a little.
	my $query = "SELECT extract(epoch FROM expires_at) FROM token_holders
		WHERE name = 'k'";
	my $end = $w->one($query);
	$A->quit;
	my (@granted, $changed);
	until_true(
		sub {
			for my $pair ([ $B, 'b' ], [ $C, 'c' ])
			{
				my ($client, $o) = @$pair;
				my $sent = time;
				push @granted, [ $o, $sent, time ]
				  if $client->one(
					"SELECT token_get('k', ttl => '10s', owner => '$o')") eq
				  't';
				last if @granted;
			}
			return 1 if @granted;
			my $now = $w->one($query);
			$changed = $now if defined $now && abs($now - $end) > 0.05;
			sleep 0.03;
			return 0;
		},
		10);
	is(scalar @granted, 1, 'one of the two has it');
	just_over($granted[0][2], 2, $before, $after);
	is($changed, undef, 'the end stood still all the time');
	$B->query("SELECT token_put('k', owner => '$granted[0][0]')");
};

subtest 'P51: SET timezone changes the display only' => sub {
	my ($A, $B) = (session($node), session($node));
	$A->query("SET timezone = 'Pacific/Kiritimati'");
	my ($before, $after) =
	  timed($A, "token_get('k', owner => 'w1', ttl => '1s')");
	$B->query("SET timezone = 'Pacific/Niue'");
	waits($w, $B, "token_get('k', wait => '10s')");
	$A->query("SET timezone = 'UTC'");
	is($B->answer, 't', 'B has it');
	just_over($B->{result}{at}, 1, $before, $after);
	answers($B, "token_put('k')", 't');
};

subtest 'P67: back after a broken connection' => sub {
	my $A = session($node);
	answers($A, "token_get('k', owner => 'w1', ttl => '30s')", 't');
	my $fence = $A->one("SELECT token_fence('k', owner => 'w1')");
	answers($w, "(SELECT pid FROM token_holders WHERE name = 'k')", $A->pid,
		'the pid of the session that took the lease');
	kill_session($w, $A);
	answers($w, "(SELECT pid FROM token_holders WHERE name = 'k')", undef,
		'no pid once that session is gone');
	$A = session($node);
	answers($A, "token_fence('k', owner => 'w1')", $fence);
	answers($A, "token_renew('k', '30s', owner => 'w1')", 't');
	answers($A, "token_put('k', owner => 'w1')", 't');
};

subtest 'P68: schedulers behind a frozen one' => sub {
	my ($A, $B, $C, $D) = map { session($node) } 1 .. 4;
	my @fires;
	my ($before, $after, $granted) =
	  timed($A, "granted, fence FROM token_request('fire', ttl => '1s')");
	is($granted, 't', 'A is granted');
	push @fires, $A->{result}{rows}[0][1];
	# A is frozen from here on.
	waits($w, $_,
		"granted, fence FROM token_request('fire', wait => '60s', ttl => '3s')")
	  for $B, $C, $D;
	for my $next ($B, $C, $D)
	{
		my ($g, $f) = @{ $next->result->{rows}[0] };
		is($g, 't', 'the next one is granted');
		cmp_ok($next->{result}{at} - $before, '>=', 1.0, 'after the lapse');
		ok(!$_->done, 'the ones behind it wait')
		  for grep { $_->{busy} } $B, $C, $D;
		push @fires, $f;
		answers($next, "token_put('fire')", 't');
	}
	is_deeply(\@fires, [ sort { $a <=> $b } @fires ], 'four fences, rising');
	is(scalar(keys %{ { map { $_ => 1 } @fires } }), 4, 'and different');
};

subtest 'P69: no mode in which the lock does nothing' => sub {
	# Not preloaded: 100_token_preload; recovery: 130_token_standby.
	my $A = session($node);
	$A->query('BEGIN');
	$A->fails('SELECT 1 / 0');
	is($A->fails("SELECT token_get('k')")->code, '25P02', 'failed already');
	$A->query('ROLLBACK');
	$node->safe_psql('postgres',
		"CREATE ROLE pooled LOGIN;
		 ALTER ROLE pooled SET tokenlock.session_tokens = off");
	my $B = session($node, user => 'pooled');
	my $e = $B->fails("SELECT token_get('k')");
	ok($e, 'session_tokens = off: an error') and like($e->hint, qr/owner/,
		'whose hint says to name an owner');
	answers($B, "token_get('k', owner => 'w1')", 't');
	answers($B, "token_put('k', owner => 'w1')", 't');
	$B->quit;
};

subtest 'P101: losing a race is an answer, not an error' => sub {
	my ($A, $B) = (session($node), session($node));
	$node->safe_psql('postgres', 'CREATE TABLE t (v int)');
	answers($A, "token_get('k')", 't');
	my $log = -s $node->logfile;
	$B->query('BEGIN');
	$B->query('INSERT INTO t VALUES (1)');
	answers($B, "token_get('k', ttl => '5s', owner => 'w2')", 'f');
	answers($B, "token_get('k', wait => '20ms', owner => 'w2')", 'f');
	$B->query('COMMIT');
	answers($B, "(SELECT count(*) FROM t)", '1', 'the row is there');
	is_deeply([ $B->notices ], [], 'the client heard nothing');
	unlike(
		PostgreSQL::Test::Utils::slurp_file($node->logfile, $log),
		qr/ERROR|WARNING|FATAL|PANIC/,
		'the server log has nothing new');
	answers($A, "token_put('k')", 't');
};

subtest 'P05: puts that find nothing say nothing' => sub {
	my $A = session($node);
	$A->query("SET client_min_messages = notice");
	$A->clear_notices;
	answers($A, "token_put('never')", 'f');
	answers($A, "token_put('never', owner => 'w1')", 'f');
	answers($A, "token_put('never', fence => 1)", 'f');
	answers($A, "token_put_all()", '0');
	is_deeply([ $A->notices ], [], 'no message reached the client');
};

subtest 'a session\'s grant is that session\'s only' => sub {
	my ($A, $B) = (session($node), session($node));
	answers($A, "token_get('k')", 't');
	my $f = $A->one("SELECT token_fence('k')");
	answers($B, "token_put('k', fence => $f)", 'f');
	answers($B, "token_renew('k', '1h', fence => $f)", 'f');
	answers($B, "token_put_all()", '0');
	answers($B, "token_fence('k')", undef);
	answers($A, "token_put('k', fence => $f)", 't');
	# A lease of the same role may be named by its fence alone, anywhere.
	answers($A, "token_get('k', owner => 'w1', ttl => '1h')", 't');
	$f = $A->one("SELECT token_fence('k', owner => 'w1')");
	answers($B, "token_renew('k', '1h', fence => $f)", 't');
	answers($B, "token_put('k', fence => $f)", 't');
};

subtest 'PREPARE TRANSACTION' => sub {
	my ($A, $B) = (session($node), session($node));
	$A->query('BEGIN');
	$A->query('CREATE TABLE IF NOT EXISTS prep (v int)');
	answers($A, "token_get('t', scope => 'transaction')", 't');
	answers($A, "token_get('s')", 't');
	my $e = $A->fails("PREPARE TRANSACTION 'p'");
	ok($e, 'a transaction token cannot be prepared');
	is($e->code, '0A000', 'SQLSTATE') if $e;
	answers($B, "token_get('t')", 't', 'it is free afterwards');
	answers($B, "token_get('s')", 'f', 'a session token is still held');
	# Session tokens do not mind.
	$A->query('ROLLBACK');
	$A->query('BEGIN');
	$A->query('CREATE TABLE IF NOT EXISTS prep (v int)');
	is($A->fails("PREPARE TRANSACTION 'p'"), undef, 'prepared beside one');
	answers($B, "token_get('s')", 'f', 'which is still held');
	answers($A, "token_put('s')", 't');
	$A->query("ROLLBACK PREPARED 'p'");
	# Put in time, it is no transaction token any more; lengthened, neither.
	$A->query('BEGIN');
	answers($A, "token_get('p', scope => 'transaction')", 't');
	answers($A, "token_put('p')", 't');
	answers($A, "token_get('q', scope => 'transaction')", 't');
	answers($A, "token_get('q')", 't');
	is($A->fails("PREPARE TRANSACTION 'p'"), undef, 'none is left: prepared');
	$A->query("ROLLBACK PREPARED 'p'");
	answers($B, "token_get('q')", 'f', 'the lengthened hold is still there');
	answers($A, "token_put('q')", 't');
};

is($w->one("SELECT count(*) FROM token_waiters"), '0', 'nobody waits');
$node->stop;
done_testing();
