# What is left of tokens when databases and extensions come and go, when memory
# is full, and while others look.  P30

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $node = new_server('drop',
	conf => "max_connections = 60\ntokenlock.memory = 4MB\n");
my $w = session($node, app => 'watch');

sub memory { return $w->one('SELECT memory FROM token_stats'); }

subtest 'DROP DATABASE' => sub {
	my $stats = "SELECT puts || ' ' || expiries FROM token_stats";
	$w->query('CREATE DATABASE d1');
	session($node, dbname => 'd1')->query('CREATE EXTENSION tokenlock');
	$w->query('SELECT pg_stat_clear_snapshot()');
	my $before = memory();
	my $counted = $w->one($stats);
	for my $round (1 .. 3)
	{
		my $d = session($node, dbname => 'd1');
		$d->query("SELECT token_get('l' || i, owner => 'w1', ttl => '1h'),
			token_get('l' || i, owner => 'w2', keep_place => '1h')
			FROM generate_series(1, 500) i");
		$d->query("SELECT token_get('s', capacity => 5, owner => 'p' || i)
			FROM generate_series(1, 5) i");
		is($d->one('SELECT count(*) FROM token_waiters'), 500, 'places are kept');
		cmp_ok(memory(), '>', $before + 100_000, 'they use memory');
		$d->quit;
		until_gone($w, $d->pid);
		$w->query('DROP DATABASE d1');
		is($w->one($stats), $counted, 'it is not counted here');
		cmp_ok(memory(), '<', $before + 10_000, 'DROP DATABASE gives all of it back');
		$w->query('CREATE DATABASE d1');
		$d = session($node, dbname => 'd1');
		$d->query('CREATE EXTENSION tokenlock');
		is($d->one('SELECT count(*) FROM token_holders'), 0, 'the same name: nothing held');
		is($d->one("SELECT token_get('l1', owner => 'w3')"), 't', 'free');
		is($d->one("SELECT token_put('l1', owner => 'w3')"), 't', 'and put');
		$d->quit;
		until_gone($w, $d->pid);
	}
	# One that fails keeps everything.
	my $d = session($node, dbname => 'd1');
	$d->query("SELECT token_get('l1', owner => 'w1', ttl => '1h')");
	is($w->fails('DROP DATABASE d1')->code, '55006', 'in use: it is not dropped');
	is($d->one('SELECT count(*) FROM token_holders'), 1, 'and its token is held');
	$d->quit;
	until_gone($w, $d->pid);
	$w->query('DROP DATABASE d1');
};

subtest 'DROP EXTENSION' => sub {
	$w->query('CREATE DATABASE d2');
	my ($A, $B, $C) = map { session($node, dbname => 'd2') } 1 .. 3;
	$A->query('CREATE EXTENSION tokenlock');
	my $f1 = $A->one("SELECT fence FROM token_request('k')");
	answers($A, "token_get('l', owner => 'w1', ttl => '1h')", 't');
	answers($A, "token_get('l', owner => 'w2', keep_place => '1h')", 'f');
	# rolled back: nothing happens
	$B->query('BEGIN; DROP EXTENSION tokenlock; ROLLBACK');
	$B->query('BEGIN; SAVEPOINT a; DROP EXTENSION tokenlock; ROLLBACK TO a; COMMIT');
	is($A->one("SELECT token_fence('k')"), $f1, 'a rollback ends no token');
	is($A->one('SELECT count(*) FROM token_holders'), 2, 'nor a lease');
	$B->query('DROP EXTENSION tokenlock');
	is($A->fails("SELECT token_put('k')")->code, '42883', 'the functions are gone');
	$B->query('CREATE EXTENSION tokenlock');
	is($A->one('SELECT count(*) FROM token_holders'), 0, 'and all tokens with them');
	is($A->one('SELECT count(*) FROM token_waiters'), 0, 'and places');
	answers($A, "token_fence('k')", undef);
	answers($A, "token_put('k')", 'f');
	answers($B, "token_get('k')", 't');
	cmp_ok($B->one("SELECT token_fence('k')"), '>', $f1, 'fences go on growing');
	answers($A, "token_get('k')", 'f');
	answers($B, "token_put('k')", 't');
	answers($A, "token_get('k')", 't');
	# waiters behind the old holder
	$B->send("SELECT token_get('k', wait => '20s')");
	ok( until_true(sub { $A->one('SELECT count(*) FROM token_waiters') == 1 }),
		'one waits');
	$C->query('DROP EXTENSION tokenlock CASCADE');
	ok($B->done(30), 'who waited comes back');
	$C->query('CREATE EXTENSION tokenlock');
	$B->result;
	$_->quit for $A, $B;
	ok( until_true(sub { $C->one('SELECT count(*) FROM token_holders') == 0 }),
		'nothing is left when the sessions end');
	is($C->one('SELECT count(*) FROM token_waiters'), 0, 'nobody waits');
	$C->quit;
};

subtest 'schemas' => sub {
	$w->query('CREATE DATABASE d3');
	my $c = session($node, dbname => 'd3');
	$c->query('CREATE SCHEMA x; CREATE SCHEMA "Y y"; CREATE EXTENSION tokenlock SCHEMA x');
	my $last = 0;
	my $round = sub {
		my ($s) = @_;
		is($c->one("SELECT $s.token_get('k')"), 't', "$s: get");
		my $f = $c->one("SELECT $s.token_fence('k')");
		cmp_ok($f, '>', $last, 'the fence has grown');
		$last = $f;
		is($c->one("SELECT count(*) FROM $s.token_holders"), 1, 'the view');
		is($c->one("SELECT $s.token_get_all('{a,b}', owner => 'w1', ttl => '20s')"),
			't', 'get_all');
		is($c->one("SELECT $s.token_guard('k')"), $f, 'guard');
		is($c->query("CALL $s.token_acquire('k')")->{rows}[0][1], $f, 'acquire');
		is($c->one("SELECT count(*) FROM $s.token_stats"), 1, 'stats');
		is($c->one("SELECT count(*) > 0 FROM $s.token_stats_by_name"), 't', 'by name');
		return $f;
	};
	my $end = sub {
		my ($s) = @_;
		is($c->one("SELECT $s.token_put('k')"), 't', 'put');
		is($c->one("SELECT $s.token_put_all(owner => 'w1')"), 2, 'put all');
	};
	$round->('x');
	$c->query('ALTER EXTENSION tokenlock SET SCHEMA "Y y"');
	is($c->one(q{SELECT "Y y".token_fence('k')}), $last, 'moved: the token is held on');
	$end->('"Y y"');
	$round->('"Y y"');
	$end->('"Y y"');
	# a new block of fences is reserved after a restart
	$c->quit;
	$node->restart;
	$w = session($node, app => 'watch');
	$c = session($node, dbname => 'd3');
	$round->('"Y y"');
	$end->('"Y y"');
	$c->query('ALTER EXTENSION tokenlock SET SCHEMA x');
	$node->stop('immediate');
	$node->start;
	$w = session($node, app => 'watch');
	$c = session($node, dbname => 'd3');
	# the leases may run until then
	$c->query("SELECT x.token_get('grace', wait => '2min', scope => 'transaction')");
	$round->('x');
	$end->('x');
	# an evil path and names of one's own
	$c->query('CREATE SCHEMA evil; CREATE SEQUENCE evil.tokenlock_fence;
		CREATE FUNCTION evil.tokenlock_holders() RETURNS int LANGUAGE sql AS $$SELECT 1/0$$;
		SET search_path = evil, pg_catalog');
	$round->('x');
	$end->('x');
	is($c->one('SELECT is_called FROM evil.tokenlock_fence'), 'f', 'left alone');
	$c->query('DROP EXTENSION tokenlock');
	is($c->fails("SELECT x.token_get('k')")->code, '42883', 'gone');
	$c->quit;
};

# Fills the memory with each kind; there is an error, and room again.
subtest 'memory full' => sub {
	my %fill = (
		leases => "token_get('f%d', owner => 'w1', ttl => '1h')",
		'session tokens' => "token_get('f%d', ttl => '1h')",
		permits => "token_get('f', owner => 'w' || %d, capacity => 1000000)",
		shared => "token_get('f', owner => 'w' || %d, shared => true)",
		places => "token_get('p', owner => 'w' || %d, keep_place => '1h')",
		several => "token_get_all(ARRAY['f%d', 'g%d'], owner => 'w1')");
	my $keep = session($node);
	my $f0 = $keep->one("SELECT fence FROM token_request('p', owner => 'first', ttl => '1h')");
	my $start = memory();
	for my $kind (sort keys %fill)
	{
		my $c = session($node);
		my $call = $fill{$kind};
		(my $dynamic = $call) =~ s/'(\w)%d'/'$1' || i/g;
		$dynamic =~ s/%d/i/g;
		# A list of holders is walked through for each: not too many at once.
		$c->query("DO \$\$ DECLARE i int := 0; BEGIN
			LOOP
				i := i + 1;
				PERFORM $dynamic;
				EXIT WHEN i > 3000 AND '$kind' ~ 'permits|shared|places';
			END LOOP;
		EXCEPTION WHEN configuration_limit_exceeded THEN
			RAISE NOTICE 'full after %', i;
		END \$\$");
		my ($note) = grep { /full/ } $c->notices;
		ok($note, "$kind: " . ($note // 'not full'))
		  if $kind !~ /permits|shared|places/;
		is($keep->one("SELECT token_fence('p', owner => 'first')"), $f0,
			'nothing is lost');
		if ($note)
		{
			my $e = $c->fails("SELECT $dynamic FROM generate_series(900001, 900500) i");
			is($e && $e->code, '53400', 'full, again');
			like($e->hint, qr/tokenlock\.memory/, 'the error has a hint');
		}
		$c->query('SELECT token_put_all()');
		$c->query("SELECT token_break(name, fence) FROM token_holders WHERE owner IS DISTINCT FROM 'first'");
		$c->query("SELECT token_get('p', owner => owner, keep_place => '1ms') FROM token_waiters");
		sleep 0.01;
		$c->query("SELECT token_get('p', owner => 'x')");
		is($c->one('SELECT (SELECT count(*) FROM token_waiters) + (SELECT count(*) FROM token_holders)'),
			1, 'all of it goes');
		cmp_ok(memory(), '<', $start + 50_000, 'and there is room again');
		is($c->one("SELECT bool_and(token_get('r' || i, owner => 'w1')) FROM generate_series(1, 1000) i"),
			't', 'for others');
		is($c->one("SELECT token_put_all(owner => 'w1')"), 1000, '.. that are put');
		$c->quit;
	}
	$keep->query("SELECT token_put('p', owner => 'first')");
};

# P30: looking while all is in motion.
subtest 'P30' => sub {
	my $until = time + (full_run() ? 30 : 6);
	my @pids;
	for my $id (1 .. 8)
	{
		push @pids, in_child(
			sub {
				srand $id;
				my $c = session($node);
				while (time < $until)
				{
					my $own = rand() < 0.5 ? ", owner => 'w$id'" : '';
					my $how = ('', ', shared => true', ', capacity => 3', ", ttl => '5ms'")[ rand 4 ];
					my $k = 'n' . int rand 50;
					$c->send("SELECT token_get('$k', wait => '20ms'$own$how), token_put('$k'$own)");
					if (rand() < 0.2) { sleep rand 0.004; $c->cancel; }
					$c->result;
					if (rand() < 0.03)
					{
						$c->drop;
						$c = session($node);
					}
				}
			});
	}
	my ($looks, $bad) = (0, 0);
	while (time < $until)
	{
		$bad += $w->one('SELECT count(*) FROM token_holders WHERE name IS NULL OR role IS NULL');
		$bad += $w->one('SELECT count(*) FROM token_waiters WHERE name IS NULL OR place < 1');
		$bad += $w->one('SELECT count(*) FROM token_stats WHERE gets < grants OR memory <= 0');
		$bad += $w->one('SELECT count(*) FROM token_stats_by_name WHERE name IS NULL');
		$looks++;
	}
	children_did_well('those who took them had no error', @pids);
	is($bad, 0, "$looks looks");
	ok( until_true(
			sub {
				$w->one('SELECT (SELECT count(*) FROM token_holders WHERE pid IS NOT NULL)
					+ (SELECT count(*) FROM token_waiters)') == 0;
			}),
		'nothing of sessions that have gone is shown');
};

done_testing();
