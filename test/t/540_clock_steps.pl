# Steps of the wall clock and reboots of the machine, before and after crashes
# and clean stops: leases end by a clock that no step moves, and across a reboot
# never too soon.
# P51

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

plan skip_all => 'needs Linux and a C compiler'
  unless $^O eq 'linux' && !system('cc --version >/dev/null 2>&1');

my $dir = PostgreSQL::Test::Utils::tempdir;
my $shim = "$dir/clock_shim.so";
my $clock = "$dir/clock";
system_or_bail('cc', '-shared', '-fPIC', '-o', $shim,
	"$FindBin::RealBin/../perl/clock_shim.c", '-ldl');

my ($wall, $boottime, $boot) = (0, 0, 1);

sub set_clock
{
	open(my $fh, -e $clock ? '+<:raw' : '>:raw', $clock) or die;
	print $fh pack('qq', $wall * 1e6, $boottime * 1e6), "boot $boot\n";
	close $fh;
	return;
}

# Seconds for the wall clock alone.
sub step_wall
{
	$wall += shift;
	set_clock();
	return;
}

# The machine boots: the boot-time clock begins anew, long before.
sub reboot
{
	$boottime -= 100_000;
	$boot++;
	set_clock();
	return;
}

set_clock();
# The clock must not be read as running backwards from zero.
$boottime = 1_000_000;
set_clock();

my $node = new_server(
	'clock',
	bare => 1,
	init => {},
	conf => "fsync = on\ntokenlock.grace = '30s'\n");
$node->stop;
$ENV{TL_TEST_CLOCK} = $clock;

sub start
{
	local $ENV{LD_PRELOAD} = join ' ', $shim, $ENV{LD_PRELOAD} // ();
	$node->start;
	return session($node);
}

sub grace_left
{
	my ($c) = @_;
	return $c->one('SELECT extract(epoch FROM grace_until - clock_timestamp())
		FROM token_stats') // 0;
}

my $A = start();
$A->query('CREATE EXTENSION tokenlock');

# P51, while the server runs.
for my $step (3600, -3600)
{
	my $given = time;
	answers($A, "token_get('k', owner => 'w1', ttl => '3s')", 't');
	my $B = session($node);
	$B->send("SELECT token_get('k', owner => 'w2', wait => '1min', ttl => '1ms')");
	step_wall($step);
	is($B->result->{rows}[0][0], 't', "P51: the wall clock steps by $step s");
	cmp_ok(time - $given, '>=', 3, 'P51: the lease does not end earlier');
	cmp_ok(time - $given, '<', 30, 'P51: nor much later');
	$B->quit;
}

# In the crash, on the same boot.
for my $step (7200, -7200)
{
	my $given = time;
	answers($A, "token_get('k', owner => 'w1', ttl => '20s')", 't');
	answers($A, "token_get('long', owner => 'w1', ttl => '100s')", 't');
	my $long = $A->one("SELECT token_fence('long', owner => 'w1')");
	$A->quit;
	$node->stop('immediate');
	step_wall($step);
	$A = start();
	is($A->one("SELECT answer FROM token_request('k', owner => 'w2')"),
		time - $given < 20 ? 'grace' : 'new',
		"a step by $step s with a crash: still a grace");
	cmp_ok(grace_left($A), '<=', 20, 'of at most the lease');
	answers($A, "token_fence('long', owner => 'w1')", $long, 'a long lease goes on');
	answers($A, "(SELECT expires_at - clock_timestamp() BETWEEN '1s' AND '100s'
		FROM token_holders WHERE name = 'long')", 't', 'to its own end');
	answers($A, "token_get('k', owner => 'w2', wait => '1min', ttl => '1ms')", 't');
	cmp_ok(time - $given, '>=', 20, 'and nobody is granted too early');
}

# In a clean stop.
for my $step (7200, -7200)
{
	answers($A, "token_get('c', owner => 'w1', ttl => '25s')", 't');
	$A->quit;
	$node->stop;
	step_wall($step);
	$A = start();
	answers($A, "(SELECT expires_at - clock_timestamp() BETWEEN '0s' AND '25s'
		FROM token_holders WHERE name = 'c')", 't',
		"a step by $step s with a clean stop");
	answers($A, "token_put('c', owner => 'w1')", 't');
}

# A reboot with a clean stop: what was left is left.
answers($A, "token_get('c', owner => 'w1', ttl => '28s')", 't');
$A->quit;
$node->stop;
reboot();
step_wall(3600);
$A = start();
answers($A, "(SELECT expires_at - clock_timestamp() BETWEEN '1s' AND '28s'
	FROM token_holders WHERE name = 'c')", 't', 'a reboot with a clean stop');
answers($A, "token_put('c', owner => 'w1')", 't');

# A power failure: the whole grace from the start; a long lease by the wall
# clock, but not longer than its ttl, and not less than the grace.
answers($A, "token_get('k', owner => 'w1', ttl => '29s')", 't');
answers($A, "token_get('gone', owner => 'w1', ttl => '100s')", 't');
answers($A, "token_get('day', owner => 'w1', ttl => '1 day')", 't');
$A->quit;
$node->stop('immediate');
reboot();
step_wall(3600);
$A = start();
cmp_ok(grace_left($A), '<=', 29, 'a power failure: a grace');
cmp_ok(grace_left($A), '>', 1, 'from the start');
isnt($A->one("SELECT token_fence('gone', owner => 'w1')"), undef,
	'a long lease that ended while the machine was down lasts as long');
answers($A, "(SELECT expires_at - clock_timestamp() BETWEEN '22:50' AND '23:01'
	FROM token_holders WHERE name = 'day')", 't', 'another by the wall clock');
answers($A, "token_get('gone', owner => 'w2', wait => '2min', ttl => '1ms')", 't');
$A->quit;
$node->stop('immediate');
reboot();
step_wall(-7 * 86400);
$A = start();
answers($A, "(SELECT expires_at - clock_timestamp() <= '1 day'
	FROM token_holders WHERE name = 'day')", 't',
	'a clock that was set back makes it no longer than its ttl');
$A->quit;
$node->stop;
done_testing();
