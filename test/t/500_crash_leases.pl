# A lease that ran when the server crashed is granted to nobody before it would
# have lapsed; without one nobody has to wait; and what was reserved is lowered.
# P37

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('crash',
	conf => "fsync = on\nrestart_after_crash = on\n"
	  . "tokenlock.default_ttl = '2s'\n");
my $request = "answer FROM token_request('k', owner => 'w2')";

sub crash
{
	$node->stop('immediate');
	$node->start;
	return session($node);
}

# What the grace is at the moment; undef if there is none.
sub grace_left
{
	my ($c) = @_;
	return $c->one('SELECT extract(epoch FROM grace_until - clock_timestamp())
		FROM token_stats');
}

# No lease, no grace.
my $A = session($node);
answers($A, "token_get('k')", 't', 'a session token');
my $B = crash();
is(grace_left($B), undef, 'session tokens leave no grace');
answers($B, $request, 'new', 'and are free at once');
answers($B, "token_put('k', owner => 'w2')", 't');

# A lease that runs.
$A = crash();
until_true(sub { !defined grace_left($A) });
my $begin = time;
answers($A, "token_get('k', owner => 'w1', ttl => '20s')", 't', 'a lease');
my $answered = time;
$B = crash();
answers($B, $request, 'grace', 'after a crash its token is not granted');
my ($granted, $place) = $B->row("SELECT granted, place FROM token_request(
	'k', owner => 'w2', keep_place => '1min')");
is($granted, 'f', 'nor with a place in line');
is($place, '1', 'which is kept');
answers($B, "token_get('k')", 'f', 'nor to a session');
answers($B, "token_get('other')", 'f', 'nor any other token');
answers($B, "token_get_all('{m,n}')", 'f', 'nor several');
answers($B, "token_renew('k', owner => 'w1')", 'f',
	'its holder is told that it was lost');
my $left = grace_left($B);
cmp_ok($left, '<=', 20, 'the grace is no longer than the lease');
my $log = slurp_file($node->logfile);
like($log, qr/no token of database "postgres" is granted until 20\d\d-/,
	'the log says until when');
my $C = session($node);
$C->send("SELECT token_get('n', wait => '1min')");
answers($B, "token_get('k', wait => '1min', owner => 'w2')", 't',
	'a waiting get waits it out');
cmp_ok(time - $begin, '>=', 20, 'not before the lease would have ended');
cmp_ok(time - $answered, '<', 40, 'and not much later');
is($C->result->{rows}[0][0], 't', 'the next name, too');
is(grace_left($B), undef, 'the grace is over');
answers($B, "token_put('k', owner => 'w2')", 't');
$_->quit for $B, $C;

# A renewal is a promise, too; a crash in the grace; a clean stop in it.
$A = session($node);
answers($A, "token_get('k', owner => 'w1', ttl => '1s')", 't');
$begin = time;
answers($A, "token_renew('k', '40s', owner => 'w1')", 't', 'renewed for longer');
$B = crash();
cmp_ok(grace_left($B) // 0, '>', 2, 'a renewal counts');
$B->quit;
$B = crash();
cmp_ok(grace_left($B) // 0, '>', 1, 'a crash in the grace does not end it');
answers($B, $request, 'grace');
$B->quit;
$node->restart;
$B = session($node);
cmp_ok(grace_left($B) // 0, '>', 0, 'nor does a restart');
answers($B, "token_get('k', wait => '1min', owner => 'w2')", 't');
cmp_ok(time - $begin, '>=', 40, 'not before the lease would have ended');

# The lease that an owner asks for again, with a longer ttl.
answers($B, "token_get('k', owner => 'w2', ttl => '20s')", 't');
$B->quit;
$B = crash();
cmp_ok(grace_left($B) // 0, '>', 2, 'asking again counts');
answers($B, "token_get('k', wait => '1min', owner => 'w1', ttl => '1s')", 't');
$B->quit;

# A backend is killed.
$A = session($node);
$begin = time;
answers($A, "token_get('k', owner => 'w1', ttl => '20s')", 't');
$A->send("SELECT pg_sleep(600)");
kill 'KILL', $A->pid;
ok( until_true(
		sub {
			$B = eval { session($node) } or return 0;
			return eval { $B->one('SELECT 1') };
		}),
	'the server is back after a backend was killed');
answers($B, $request, 'grace', 'and grants nothing');
answers($B, "token_get('k', wait => '1min', owner => 'w2')", 't');
cmp_ok(time - $begin, '>=', 20, 'not before the lease would have ended');
answers($B, "token_put('k', owner => 'w2')", 't');
$B->quit;

# Another database has nothing to do with it.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION tokenlock');
$node->safe_psql('other', "SELECT token_get('k')");
$A = session($node);
answers($A, "token_get('k', owner => 'w1', ttl => '30s')", 't');
$B = crash();
answers($B, $request, 'grace');
$C = session($node, dbname => 'other');
answers($C, $request, 'new', 'another database grants at once');
$_->quit for $B, $C;

# A copy of a database has none of its leases.
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
$C = session($node, dbname => 'copy');
answers($C, $request, 'new', 'nor does a copy wait');
$C->quit;

# In READ ONLY, and without a transaction id.
$node->safe_psql('postgres', 'DROP EXTENSION tokenlock');
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock');
$A = session($node);
$A->query('BEGIN READ ONLY');
ok(until_true(sub { !defined grace_left($A) }, 120), 'the grace has an end');
answers($A, "token_get('r', owner => 'w1', ttl => '20s')", 't',
	'a lease in a read-only transaction');
answers($A, 'pg_current_xact_id_if_assigned()', undef, 'without an id');
$A->query('ROLLBACK');
$B = crash();
answers($B, $request, 'grace', 'is a promise though it was rolled back');
$B->quit;

$node->stop;
done_testing();
