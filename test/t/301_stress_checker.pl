# The checker of the stress run must be able to fail: logs with one planted
# violation each, and the nearest logs that are right.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Utils;
use Test::More;
use TokenCheck;

my $dir = PostgreSQL::Test::Utils::tempdir();

# Checks lines that are written with spaces for tabs.
sub check
{
	my ($log) = @_;
	open my $fh, '>', "$dir/log" or die $!;
	for my $line (split /\n/, $log)
	{
		$line =~ s/^\s+|\s+$//g;
		next if $line eq '';
		print {$fh} join("\t", split ' ', $line), "\n";
	}
	close $fh;
	return TokenCheck->new("$dir/log")->violations;
}

sub right
{
	my ($name, $log) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join("\n", check($log)), '', "right: $name");
}

# It is wrong in this way, and in no other.
sub wrong
{
	my ($kind, $name, $log) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @violations = check($log);
	return is(join(' ', map { /^(\w+): / } @violations), $kind, "$kind: $name")
	  || diag(join "\n", @violations);
}

right('one after the other', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.2 a put 2 k 10
	1.3 a putans 2 t
	1.0 b ask 1 k - - session
	1.3 b ans 1 t 11 new
	1.4 b put 2 k 11
	1.5 b putans 2 t
});
wrong('overlap', 'two sessions at a time', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.4 a put 2 k 10
	1.5 a putans 2 t
	1.0 b ask 1 k - - session
	1.3 b ans 1 t 11 new
	1.6 b put 2 k 11
	1.7 b putans 2 t
});
wrong('overlap', 'a second holder while the first never puts', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.2 b ask 1 k - - session
	1.3 b ans 1 t 11 new
});
wrong('overlap', 'the order of the fences is not that of the holders', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 11 new
	1.2 a put 2 k 11
	1.3 a putans 2 t
	1.1 b ask 1 k - - session
	1.4 b ans 1 t 10 new
	1.5 b put 2 k 10
	1.6 b putans 2 t
});
right('a lease that may have lapsed', q{
	1.0 a ask 1 k x 0.5 session
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session
	1.5001 b ans 1 t 11 new
	1.6 a put 2 k 10
	1.7 a putans 2 f
});
wrong('overlap', 'a lease that has not lapsed', q{
	1.0 a ask 1 k x 0.5 session
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session
	1.4999 b ans 1 t 11 new
});
wrong('overlap', 'a lease that was renewed', q{
	1.0 a ask 1 k x 0.5 session
	1.1 a ans 1 t 10 new
	1.4 a renew 2 k 10 0.5
	1.5 a renans 2 t
	1.0 b ask 1 k - - session
	1.8 b ans 1 t 11 new
});
right('a lease that was shortened', q{
	1.0 a ask 1 k x 5 session
	1.1 a ans 1 t 10 new
	1.4 a renew 2 k 10 0.1
	1.41 a renans 2 t
	1.0 b ask 1 k - - session
	1.8 b ans 1 t 11 new
});
wrong('overlap', 'a put that still found the lease', q{
	1.0 a ask 1 k x 0.5 session
	1.1 a ans 1 t 10 new
	1.9 a put 2 k 10
	2.0 a putans 2 t
	1.0 b ask 1 k - - session
	1.8 b ans 1 t 11 new
});
right('a put without an answer', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.2 a put 2 k 10
	1.0 b ask 1 k - - session
	1.3 b ans 1 t 11 new
});
right('a holder that was stopped', q{
	0.9 a open 77
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.2 z stop 77
	1.0 b ask 1 k - - session
	1.3 b ans 1 t 11 new
});
wrong('overlap', 'a holder that is stopped later', q{
	0.9 a open 77
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.4 z stop 77
	1.0 b ask 1 k - - session
	1.3 b ans 1 t 11 new
});
wrong('overlap', 'a lease outlives its session', q{
	0.9 a open 77
	1.0 a ask 1 k x 5 session
	1.1 a ans 1 t 10 new
	1.2 a end
	1.0 b ask 1 k - - session
	1.3 b ans 1 t 11 new
});
right('two sessions of one owner', q{
	1.0 a ask 1 k x 5 session
	1.1 a ans 1 t 10 new
	1.2 b ask 1 k x 5 session
	1.3 b ans 1 t 10 again
	1.4 b put 2 k 10
	1.5 b putans 2 t
	1.6 a put 2 k 10
	1.7 a putans 2 f
});
wrong('fence', 'one fence for two grants', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.2 a put 2 k 10
	1.3 a putans 2 t
	1.4 b ask 1 l - - session
	1.5 b ans 1 t 10 new
	1.6 b ask 2 k x 0.01 session
	1.7 b ans 2 t 10 new
});
wrong('fence', 'a smaller fence later', q{
	1.0 a ask 1 k x 0.01 session
	1.1 a ans 1 t 10 new
	1.4 b ask 1 k x 0.01 session
	1.5 b ans 1 t 9 new
});
right('fences of other names have nothing to do with it', q{
	1.0 a ask 1 k x 0.01 session
	1.1 a ans 1 t 10 new
	1.4 b ask 1 l x 0.01 session
	1.5 b ans 1 t 9 new
});
right('in the order seen', q{
	1.0 b open 77
	1.0 b ask 1 k - - session
	1.3 z seen 1.2 k 77
	1.4 c ask 1 k x 0.01 session
	1.5 b ans 1 t 11 new
	1.6 b put 2 k 11
	1.6 b putans 2 t
	1.7 c ans 1 t 12 new
});
wrong('order', 'overtaken by a later request', q{
	1.0 b open 77
	1.0 b ask 1 k - - session
	1.3 z seen 1.2 k 77
	1.4 c ask 1 k x 0.01 session
	1.5 c ans 1 t 11 new
	1.7 b ans 1 t 12 new
});
right('asked before the other was seen', q{
	1.0 b open 77
	1.0 b ask 1 k - - session
	1.3 z seen 1.2 k 77
	1.25 c ask 1 k x 0.01 session
	1.5 c ans 1 t 11 new
	1.7 b ans 1 t 12 new
});
wrong('order', 'granted while a timed-out one was still in line', q{
	1.0 b open 77
	1.0 b ask 1 k - - session
	1.3 z seen 1.2 k 77
	1.4 c ask 1 k x 0.01 session
	1.5 c ans 1 t 11 new
	1.8 z seen 1.7 k 77
	1.9 b ans 1 f - busy
});
right('overtaken after another session of its owner was served', q{
	1.0 b open 77
	1.0 b ask 1 k x 5 session
	1.3 z seen 1.2 k 77
	1.1 a ask 1 k x 5 session
	1.35 a ans 1 t 10 new
	1.36 a put 2 k 10
	1.37 a putans 2 t
	1.4 c ask 1 k - - session
	1.5 c ans 1 t 11 new
	1.6 c put 2 k 11
	1.6 c putans 2 t
	1.7 b ans 1 t 12 new
});
wrong('order', 'overtaken after another owner was served', q{
	1.0 b open 77
	1.0 b ask 1 k y 5 session
	1.3 z seen 1.2 k 77
	1.1 a ask 1 k x 5 session
	1.35 a ans 1 t 10 new
	1.36 a put 2 k 10
	1.37 a putans 2 t
	1.4 c ask 1 k - - session
	1.5 c ans 1 t 11 new
	1.6 c put 2 k 11
	1.6 c putans 2 t
	1.7 b ans 1 t 12 new
});
right('granted after the other had left', q{
	1.0 b open 77
	1.0 b ask 1 k - - session
	1.3 z seen 1.2 k 77
	1.4 c ask 1 k x 0.01 session
	1.5 b ans 1 57014 - -
	1.6 c ans 1 t 11 new
});
wrong('early', 'a put that is denied', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 t 10 new
	1.4 a put 2 k 10
	1.5 a putans 2 f
});
wrong('early', 'a renewal that is denied', q{
	1.0 a ask 1 k x 5 session
	1.1 a ans 1 t 10 new
	1.4 a renew 2 k 10 5
	1.5 a renans 2 f
});
right('two sessions of one owner put at a time', q{
	1.0 a ask 1 k x 5 session
	1.1 a ans 1 t 10 new
	1.2 b ask 1 k x 5 session
	1.3 b ans 1 t 10 again
	1.4 b put 2 k 10
	1.41 a put 2 k 10
	1.5 b putans 2 f
	1.5 a putans 2 t
});
right('a renewal that came late', q{
	1.0 a ask 1 k x 0.5 session
	1.1 a ans 1 t 10 new
	1.4 a renew 2 k 10 5
	1.6 a renans 2 f
});
wrong('error', 'an error and yet a holder', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 57014 - -
	1.2 a probe k 10
});
right('an error and no holder', q{
	1.0 a ask 1 k - - session
	1.1 a ans 1 57014 - -
	1.2 a probe k -
});


#
# Modes
#
right('as many permits as each accepts', q{
	1.0 a ask 1 k - - session 2 - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session 3 - -
	1.2 b ans 1 t 11 new
});
wrong('overlap', 'one permit more than an earlier holder accepts', q{
	1.0 a ask 1 k - - session 2 - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session 3 - -
	1.2 b ans 1 t 11 new
	1.0 c ask 1 k - - session 3 - -
	1.3 c ans 1 t 12 new
});
wrong('overlap', 'one permit more than the later holder accepts', q{
	1.0 a ask 1 k - - session 3 - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session 3 - -
	1.2 b ans 1 t 11 new
	1.0 c ask 1 k - - session 2 - -
	1.3 c ans 1 t 12 new
});
right('a third permit when the first was put', q{
	1.0 a ask 1 k - - session 2 - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session 2 - -
	1.2 b ans 1 t 11 new
	1.25 a put 2 k 10
	1.3 a putans 2 t
	1.0 c ask 1 k - - session 2 - -
	1.3 c ans 1 t 12 new
});
right('shared holders', q{
	1.0 a ask 1 k - - session s - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k x 5 session s - -
	1.2 b ans 1 t 11 new
	1.0 c ask 1 k - - transaction s - -
	1.3 c ans 1 t 12 new
});
wrong('overlap', 'alone beside a shared holder', q{
	1.0 a ask 1 k - - session s - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session x - -
	1.2 b ans 1 t 11 new
});
wrong('overlap', 'shared beside one that has it alone', q{
	1.0 a ask 1 k - - session x - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session s - -
	1.2 b ans 1 t 11 new
});
wrong('overlap', 'shared beside a permit', q{
	1.0 a ask 1 k - - session 9 - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session s - -
	1.2 b ans 1 t 11 new
});
wrong('overlap', 'given before another was, and there when that was answered', q{
	1.0 a ask 1 k - - session x - -
	1.0 b ask 1 k - - session 2 - -
	1.2 b ans 1 t 11 new
	1.3 a ans 1 t 10 new
});

# Upgrades
right('an upgrade when the others have put', q{
	1.0 a ask 1 k - - session s - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session s - -
	1.1 b ans 1 t 11 new
	1.2 a ask 2 k - - session x - 10
	1.3 b put 2 k 11
	1.4 a ans 2 t 12 new
	1.5 b putans 2 t
	1.6 a put 3 k 12
	1.7 a putans 3 t
});
wrong('overlap', 'an upgrade beside another shared holder', q{
	1.0 a ask 1 k - - session s - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k - - session s - -
	1.1 b ans 1 t 11 new
	1.2 a ask 2 k - - session x - 10
	1.4 a ans 2 t 12 new
});
wrong('overlap', 'the shared hold was lost by an upgrade that was refused', q{
	1.0 a ask 1 k - - session s - -
	1.1 a ans 1 t 10 new
	1.2 a ask 2 k - - session x - 10
	1.4 a ans 2 f - busy
	1.0 b ask 1 k - - session x - -
	1.5 b ans 1 t 12 new
});
right('an upgrade goes before those in line', q{
	1.0 b open 77
	1.0 b ask 1 k - - session x - -
	1.3 z seen 1.2 k 77
	1.0 a ask 1 k x 0.5 session s - -
	1.1 a ans 1 t 10 new
	1.4 a ask 2 k x 0.5 session x - 10
	1.5 a ans 2 t 11 new
	1.51 a put 3 k 11
	1.52 a putans 3 t
	1.8 b ans 1 t 12 new
});
my $upgrade = q{
	1.0 b open 77
	1.0 b ask 1 k - 0.05 session x - -
	1.0 a open 78
	1.0 a ask 1 k x %s session s - -
	1.1 a ans 1 t 10 new
	1.2 a ask 2 k x 5 session x - 10
	1.3 z seen 1.25 k 78
	1.5 z seen 1.4 k 77
	1.6 b ans 1 t 11 new
	1.8 a ans 2 t 12 new
};
wrong('upgrade', 'somebody in line was served before it', sprintf $upgrade, 0.35);
right('.. but it may have been no upgrade any more', sprintf $upgrade, 0.25);

# Places
my $place = q{
	1.0 a ask 1 k x 0.1 session x 0.5 -
	1.1 a ans 1 f - queued
	1.2 b ask 1 k - 0.01 session x - -
	%s b ans 1 t 11 new
	%s a ask 2 k x 0.1 session x 0.5 -
	%s a ans 2 %s
};
right('a place in its turn', sprintf $place, 1.4, 1.3, 1.35, 't 10 new');
wrong('order order', 'a place was overtaken',
	sprintf $place, 1.25, 1.3, 1.35, 't 12 new');
wrong('order', 'a place was overtaken, and still waits',
	sprintf $place, 1.25, 1.3, 1.35, 'f - queued');
right('a place may have lapsed', sprintf $place, 1.55, 1.6, 1.7, 't 12 new');
wrong('order order', 'a place was asked for again, and so had not lapsed', q{
	1.0 a ask 1 k x 0.1 session x 0.5 -
	1.1 a ans 1 f - queued
	1.15 b ask 1 k - 0.01 session x - -
	1.4 a ask 2 k x 0.1 session x 0.5 -
	1.45 a ans 2 f - queued
	1.7 b ans 1 t 11 new
	1.8 a ask 3 k x 0.1 session x 0.5 -
	1.85 a ans 3 t 12 new
});
right('a place counts from its first request', q{
	1.0 a ask 1 k x 0.1 session x 0.5 -
	1.1 a ans 1 f - queued
	1.1 b open 77
	1.1 b ask 1 k - 0.01 session x - -
	1.3 z seen 1.2 k 77
	1.4 a ask 2 k x 0.1 session x 0.5 -
	1.5 a ans 2 t 10 new
	1.7 b ans 1 t 11 new
});
wrong('order', '.. but not when it has lapsed', q{
	1.0 a ask 1 k x 0.1 session x 0.1 -
	1.1 a ans 1 f - queued
	1.1 b open 77
	1.1 b ask 1 k - 0.01 session x - -
	1.3 z seen 1.2 k 77
	1.4 a ask 2 k x 0.1 session x 0.5 -
	1.5 a ans 2 t 10 new
	1.7 b ans 1 t 11 new
});
wrong('order', 'a session was overtaken by a place that came later', q{
	1.0 b open 77
	1.0 b ask 1 k - 0.01 session x - -
	1.3 z seen 1.2 k 77
	1.4 a ask 1 k x 0.1 session x 0.5 -
	1.5 a ans 1 f - queued
	1.6 a ask 2 k x 0.1 session x 0.5 -
	1.7 a ans 2 t 10 new
	1.9 b ans 1 t 11 new
});
right('a call for several tokens begins anew when it loses one', q{
	1.0 b open 77
	1.0 b ask 1 j - - session x - -
	1.0 b ask 2 k - - session x - -
	1.3 z seen 1.2 k 77
	1.4 c ask 1 k x 0.01 session
	1.5 c ans 1 t 11 new
	1.7 b ans 1 t 12 new
	1.7 b ans 2 t 13 new
});

# Breaks
right('a break', q{
	1.0 a ask 1 k - - session x - -
	1.1 a ans 1 t 10 new
	1.2 z break 1 k 10
	1.3 z breans 1 t
	1.0 b ask 1 k - - session x - -
	1.25 b ans 1 t 11 new
	1.4 a put 2 k 10
	1.5 a putans 2 f
});
wrong('overlap', 'granted before the break', q{
	1.0 a ask 1 k - - session x - -
	1.1 a ans 1 t 10 new
	1.2 z break 1 k 10
	1.3 z breans 1 t
	1.0 b ask 1 k - - session x - -
	1.15 b ans 1 t 11 new
});
wrong('early', 'a break that finds nothing', q{
	1.0 a ask 1 k - - session x - -
	1.1 a ans 1 t 10 new
	1.2 z break 1 k 10
	1.3 z breans 1 f
});

# Guards
my $guard = q{
	1.0 a ask 1 k x 0.2 session x - -
	1.1 a ans 1 t 10 new
	%s a commit 2 k 10
	%s a comans 2 %s
	1.0 b ask 1 k y 5 session x - -
	1.4 b ans 1 t 11 new
};
right('a commit in time', sprintf $guard, 1.15, 1.3, 't');
right('a commit that began before the next grant was known',
	sprintf $guard, 1.39, 1.6, 't');
wrong('guard', 'a commit under the next holder', sprintf $guard, 1.41, 1.5, 't');
right('a commit that failed in time', sprintf $guard, 1.41, 1.5, '40001');
wrong('early', 'a commit that failed while the token was held',
	sprintf $guard, 1.15, 1.19, '40001');
right('a commit beside one that it does not exclude', q{
	1.0 a ask 1 k x 0.2 session s - -
	1.1 a ans 1 t 10 new
	1.0 b ask 1 k y 5 session s - -
	1.4 b ans 1 t 11 new
	1.41 a commit 2 k 10
	1.5 a comans 2 t
});
wrong('overlap', 'granted while a transaction commits that was put meanwhile', q{
	1.0 a ask 1 k x 5 session x - -
	1.1 a ans 1 t 10 new
	1.2 a commit 2 k 10
	1.3 a comans 2 t
	1.0 b ask 1 k y 5 session x - -
	1.15 b ans 1 t 11 new
});
my $work = q{
	0 - work k 10 %s 700 690:700:
	0 - work k 11 %s 701 %s
};
right('it sees the work of its predecessor', sprintf $work, 'x', 'x', '701:701:');
wrong('guard', 'its predecessor runs yet', sprintf $work, 'x', 'x', '700:701:700');
wrong('guard', 'its predecessor has not begun', sprintf $work, 'x', 'x', '690:700:');
wrong('guard', 'shared before alone', sprintf $work, 's', 'x', '700:701:700');
wrong('guard', 'alone before a permit', sprintf $work, 'x', '2', '700:701:700');
wrong('guard', 'a permit before shared', sprintf $work, '2', 's', '700:701:700');
right('two that are shared', sprintf $work, 's', 's', '700:701:700');
right('two permits', sprintf $work, '2', '3', '700:701:700');
right('two transactions of one grant', q{
	0 - work k 10 x 700 690:700:
	0 - work k 10 x 701 700:701:700
});

done_testing();
