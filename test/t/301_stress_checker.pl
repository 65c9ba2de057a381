# The checker of the stress run must be able to fail: logs with one planted
# violation each, and the nearest logs that are right.

use strict;
use warnings FATAL => 'all';

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $checker = "$FindBin::RealBin/../check_log.pl";
my $n = 0;

# Runs the checker on lines that are written with spaces for tabs.
sub check
{
	my ($log) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/log' . $n++;
	open my $fh, '>', $file or die $!;
	for my $line (split /\n/, $log)
	{
		$line =~ s/^\s+|\s+$//g;
		next if $line eq '';
		print {$fh} join("\t", split ' ', $line), "\n";
	}
	close $fh;
	my $out = `$^X $checker $file 2>&1`;
	return ($? >> 8, $out);
}

sub right
{
	my ($name, $log) = @_;
	my ($rc, $out) = check($log);
	is("$rc $out", '0 ', "right: $name");
	return;
}

sub wrong
{
	my ($kind, $name, $log) = @_;
	my ($rc, $out) = check($log);
	is($rc, 1, "$kind: $name");
	like($out, qr/^$kind: /, 'and it says so');
	is(scalar(() = $out =~ /\n/g), 1, 'and nothing else') or diag($out);
	return;
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

done_testing();
