# Where a grant, a place or a record could be lost without anybody noticing.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('edges',
	conf => "max_prepared_transactions = 2\ntokenlock.memory = 1MB\n");
my $w = session($node, app => 'watch');
my ($A, $B);

sub begin
{
	$_->quit for grep { $_ } $A, $B;
	($A, $B) = map { session($node) } 1 .. 2;
	return;
}

# A procedure may roll back; the session's tokens are not the transaction's.
subtest 'ROLLBACK in a procedure' => sub {
	begin();
	is( $A->fails("DO \$\$ BEGIN
			PERFORM token_get('k'), token_get('t', scope => 'transaction');
			ROLLBACK;
			IF token_fence('k') IS NULL OR token_fence('t') IS NOT NULL THEN
				RAISE 'not kept';
			END IF;
		END \$\$"),
		undef, 'ends the tokens of the transaction alone');
	answers($B, "token_get('k')", 'f');
	answers($A, "token_put('k')", 't');
	is( $A->fails("DO \$\$ BEGIN
			PERFORM token_get('k'); ROLLBACK; PERFORM 1 / 0; END \$\$")->code,
		'22012', 'an error after it');
	answers($B, "token_get('k')", 't', 'ends what the statement got');
	answers($B, "token_put('k')", 't');
};

subtest 'token_get_all lengthens holds' => sub {
	begin();
	$A->query('BEGIN');
	answers($A, "token_get('k', scope => 'transaction')", 't');
	answers($A, "token_get_all('{j,k}')", 't');
	$A->query('COMMIT');
	is($A->one("SELECT string_agg(name || ' ' || scope, ', ' ORDER BY name)
			FROM token_holders"), 'j session, k session', 'both are the session\'s');
	$A->query('BEGIN');
	answers($A, "token_get_all('{j,k}', scope => 'transaction')", 't');
	$A->query('COMMIT');
	answers($A, 'token_put_all()', 2, 'nothing shortens them');
};

subtest 'DROP EXTENSION in a prepared transaction' => sub {
	begin();
	answers($A, "token_get('k', owner => 'w1', ttl => '1h')", 't');
	$B->query("BEGIN; DROP EXTENSION tokenlock");
	$B->query("PREPARE TRANSACTION 'p'");
	$B->query('SELECT 1');
	$B->query("ROLLBACK PREPARED 'p'");
	answers($B, "token_get('k')", 'f', 'rolled back: all is as before');
	answers($A, "token_put('k', owner => 'w1')", 't');
};

# The head sleeps until the place before it lapses.
subtest 'a place that is kept for less' => sub {
	begin();
	my $ask = "token_get('k', owner => 'place', keep_place => '%s')";

	answers($A, "token_get('k', capacity => 2)", 't');
	answers($A, sprintf($ask, '1h'), 'f');
	waits($w, $B, "token_get('k', wait => '40s', capacity => 2)");
	my $start = time;
	answers($A, sprintf($ask, '100ms'), 'f');
	ok($B->done(10), 'the next one is served when it lapses');
	is($B->result(60)->{rows}[0][0], 't', 'and has the token');
};

# Dropping a database is no use of tokens, and must not need memory for them.
subtest 'DROP DATABASE while memory is full' => sub {
	begin();
	$w->query("CREATE DATABASE $_") for qw(victim other);
	$A->query("DO \$\$ BEGIN
		FOR i IN 1 .. 10000 LOOP
			PERFORM token_get('f' || i, owner => 'w', ttl => '1h');
		END LOOP;
	EXCEPTION WHEN configuration_limit_exceeded THEN NULL; END \$\$");
	my $c = session($node, dbname => 'other');
	is($c->fails('DROP DATABASE victim'), undef, 'by who never used any');
	$c->quit;
	until_gone($w, $c->pid);
	$A->query("SELECT token_put_all(owner => 'w')");
	$w->query('DROP DATABASE other');
};

# A sweep frees records while one is being made.  In a database of its own: what
# goes with that leaves only what was lost.
subtest 'sweeps of full memory' => sub {
	# no names in the statistics that could make room
	$node->restart;
	$w = session($node, app => 'watch');
	my $memory = 'SELECT memory FROM token_stats';
	my $before = $w->one($memory);

	$w->query('CREATE DATABASE sweeps');
	my $c = session($node, dbname => 'sweeps');
	$c->query('CREATE EXTENSION tokenlock');
	# Full of leases that lapse; then more records of a token that is there.  In
	# one transaction, or counts by name would come and go.
	is( $c->fails("DO \$\$ DECLARE m int; BEGIN
			PERFORM token_get('p', owner => 'first', capacity => 1000, ttl => '1h');
			FOR round IN 1 .. 10 LOOP
				BEGIN
					FOR i IN 1 .. 10000 LOOP
						PERFORM token_get('f' || i, owner => 'w', ttl => '200ms');
					END LOOP;
				EXCEPTION WHEN configuration_limit_exceeded THEN NULL; END;
				BEGIN
					FOR i IN 1 .. 1000 LOOP
						m := i;
						PERFORM token_get('p', owner => 'w' || i, capacity => 1000);
					END LOOP;
				EXCEPTION WHEN configuration_limit_exceeded THEN NULL; END;
				PERFORM pg_sleep(0.21);
				PERFORM token_get('p', owner => 'x', capacity => 1000);
				PERFORM token_put('p', owner => 'x');
				PERFORM token_put('p', owner => 'w' || i) FROM generate_series(1, m) i;
			END LOOP;
		END \$\$"),
		undef, 'leases that have lapsed make room');
	$c->quit;
	until_gone($w, $c->pid);
	$w->query('DROP DATABASE sweeps');
	cmp_ok($w->one($memory), '<=', $before + 500, 'nothing is lost');
};

done_testing();
