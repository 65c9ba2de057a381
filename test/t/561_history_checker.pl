# The checker of the history of crashes and failovers must be able to fail: logs
# with one planted violation each, and the nearest ones that are right.  The
# grace is 1.5 s, so that a lease of 2 s is a long one.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use HistoryCheck;
use PostgreSQL::Test::Utils;
use Test::More;

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
	return HistoryCheck->new(1.5, "$dir/log")->violations;
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

# Grants that most of these begin with.
my $short = q{
	1.0 a ask 1 k a 1 session
	1.1 a ans 1 t 10 new
};
my $long = q{
	1.0 a ask 1 k a 2 session
	1.1 a ans 1 t 10 new
};

#
# Who believes
#
right('the next one when the time is up', "$short
	1.0 b ask 1 k b 1 session
	2.01 b ans 1 t 11 new
");
wrong('overlap', 'a moment before', "$short
	1.0 b ask 1 k b 9 session
	1.99 b ans 1 t 11 new
");
wrong('overlap', 'after a crash, too', "$short
	1.2 parent crash 1.4 server
	1.5 b ask 1 k b 1 session
	1.6 b ans 1 t 11 new
");
wrong('overlap', 'though the holder knows that it was lost', "$short
	1.2 parent crash 1.4 server
	1.5 a renew 2 k 10 1
	1.6 a renans 2 f
	1.7 b ask 1 k b 1 session
	1.8 b ans 1 t 11 new
");
right('the time is counted from before the call', q{
	1.0 a ask 1 k a 1 session
	1.9 a ans 1 t 10 new
	2.0 b ask 1 k b 1 session
	2.1 b ans 1 t 11 new
});
wrong('overlap', 'a renewal counts', "$short
	1.5 a renew 2 k 10 1
	1.6 a renans 2 t
	2.1 b ask 1 k b 1 session
	2.2 b ans 1 t 11 new
");
wrong('overlap', 'so does asking again', "$short
	1.5 a ask 2 k a 1 session
	1.6 a ans 2 t 10 again
	2.1 b ask 1 k b 1 session
	2.2 b ans 1 t 11 new
");
right('a renewal without an answer does not', "$short
	1.5 a renew 2 k 10 1
	1.6 a renans 2 08006
	2.1 b ask 1 k b 1 session
	2.2 b ans 1 t 11 new
");
right('but for a shorter end', "$short
	1.1 a renew 2 k 10 0.1
	1.3 b ask 1 k b 1 session
	1.4 b ans 1 t 11 new
");
right('nor one that asks again for a shorter end', "$short
	1.2 a ask 2 k a 0.1 session
	1.4 b ask 1 k b 1 session
	1.5 b ans 1 t 11 new
");
right('who sends a put believes no more', "$short
	1.2 a put 2 k 10
	1.3 b ask 1 k b 1 session
	1.4 b ans 1 t 11 new
	1.5 a putans 2 t
");
wrong('overlap', 'before the put', "$short
	1.4 a put 2 k 10
	1.1 b ask 1 k b 1 session
	1.3 b ans 1 t 11 new
	1.5 a putans 2 t
");
right('a put that was not done', "$short
	1.2 a put 2 k 10
	1.3 a putans 2 57P01
	1.4 a ask 3 k a 1 session
	1.5 a ans 3 t 10 again
");
wrong('overlap', 'then it believes again', "$short
	1.2 a put 2 k 10
	1.3 a putans 2 57P01
	1.4 a ask 3 k a 1 session
	1.5 a ans 3 t 10 again
	2.1 b ask 1 k b 1 session
	2.2 b ans 1 t 11 new
");
right('an answer that never came is no belief', q{
	1.0 a ask 1 k a 1 session
	1.1 b ask 1 k b 1 session
	1.2 b ans 1 t 11 new
});
wrong('overlap', 'given while another believes, though over at once', "$short
	1.2 b ask 1 k b 0.1 session
	1.4 b ans 1 t 11 new
");
right('over at once, and given before', q{
	1.0 b ask 1 k b 0.1 session
	1.2 a ask 1 k a 1 session
	1.3 a ans 1 t 11 new
	1.4 b ans 1 t 10 new
});
right('two names', "$short
	1.0 b ask 1 l b 1 session
	1.1 b ans 1 t 10 new
");

#
# Fences
#
wrong('fence fence', 'a smaller one later, by both rules', "$short
	2.1 b ask 1 k b 1 session
	2.2 b ans 1 t 9 new
");
wrong('fence', 'also by those that never believed', q{
	1.0 a ask 1 k a 0.1 session
	1.2 a ans 1 t 10 new
	1.3 b ask 1 k b 0.1 session
	1.5 b ans 1 t 9 new
});
wrong('fence', 'believed in another order', q{
	1.0 b ask 1 k b 1 session
	1.0 a ask 1 k a 0.5 session
	1.1 a ans 1 t 10 new
	1.6 b ans 1 t 9 new
});
wrong('fence', 'the same for two', "$short
	2.1 b ask 1 k b 1 session
	2.2 b ans 1 t 10 new
");
wrong('fence', 'the same twice', "$short
	2.1 a ask 2 k a 1 session
	2.2 a ans 2 t 10 new
");
wrong('fence', 'held, but never asked for', q{
	1.0 a ask 1 k a 1 session
	1.1 a ans 1 t 10 again
});
right('asked for, but the answer was lost', q{
	1.0 a ask 1 k a 1 session
	1.1 a ans 1 08006
	1.2 a ask 2 k a 1 session
	1.3 a ans 2 t 10 again
});
right('the lost one may be the earlier', q{
	1.0 a ask 1 k a 2 session
	1.1 a ans 1 08006
	1.2 b ask 1 k b 0.1 session
	1.3 b ans 1 t 11 new
	1.4 a ask 2 k a 1 session
	1.5 a ans 2 t 10 again
});

#
# Long leases
#
right('a short one is lost in a crash', "$short
	1.2 parent crash 1.4 server
	1.5 a renew 2 k 10 1
	1.6 a renans 2 f
");
right('a crash while it was given', q{
	0.9 parent crash 1.4 failover
	1.0 a ask 1 k a 1 session
	1.1 a ans 1 t 10 new
	1.5 a renew 2 k 10 1
	1.6 a renans 2 f
});
wrong('early', 'but not in one before', "
	0.7 parent crash 0.9 server
	$short
	1.5 a renew 2 k 10 1
	1.6 a renans 2 f
");
wrong('early', 'nor in a restart', "$short
	1.4 parent event 1.45 restart
	1.5 a renew 2 k 10 1
	1.6 a renans 2 f
");
for my $what (
	[ 'a renewal', "renew 2 k 10 1\n1.6 a renans 2 f" ],
	[ 'a put', "put 2 k 10\n1.6 a putans 2 f" ],
	[ 'a guard', "guard 2 k 10\n1.6 a guans 2 55000" ],
	[ 'a commit', "commit 2 k 10\n1.6 a comans 2 40001" ],
	[ 'a refusal', "ask 2 k a 1 session\n1.6 a ans 2 f - grace" ],
	[ 'another grant', "ask 2 k a 1 session\n1.6 a ans 2 t 11 new" ])
{
	wrong('early', "a long one is not lost, says $what->[0]", "$long
		1.2 parent crash 1.4 failover
		1.5 a $what->[1]
	");
}
right('a long one has an end', "$long
	1.2 parent crash 1.4 server
	2.5 a renew 2 k 10 1
	3.1 a renans 2 f
");
right('a long one that is short now', "$long
	1.1 a renew 2 k 10 1
	1.2 a renans 2 t
	1.3 parent crash 1.4 server
	1.5 a renew 3 k 10 1
	1.6 a renans 3 f
");
right('or may be', "$long
	1.1 a ask 2 k a 1.5 session
	1.2 a ans 2 57P02
	1.1 parent crash 1.4 server
	1.5 a renew 3 k 10 1
	1.6 a renans 3 f
");
wrong('early', 'a short one that is long now', "$short
	1.1 a renew 2 k 10 2
	1.2 a renans 2 t
	1.3 parent crash 1.4 server
	1.5 a renew 3 k 10 1
	1.6 a renans 3 f
");

#
# Guarded transactions
#
my $next = q{
	1.1 b ask 1 k b 3 session
	2.1 b ans 1 t 11 new
	2.2 b commit 2 k 11
	2.3 b comans 2 t
};
right('one after the other', "$short $next
	1.5 a commit 2 k 10
	1.6 a comans 2 t
	0 work work k 10 a 2 100 100:100:
	0 work work k 11 b 2 101 101:101:
");
right('an end that nobody has heard of', "$short
	1.5 a commit 2 k 10
	0 work work k 10 a 2 100 100:100:
");
wrong('guard', 'committed with a token that another has', "$short $next
	2.15 a commit 2 k 10
	2.3 a comans 2 t
	0 work work k 10 a 2 100 100:100:
	0 work work k 11 b 2 101 101:101:
");
wrong('guard', 'without an answer, too', "$short $next
	2.15 a commit 2 k 10
	0 work work k 10 a 2 100 100:100:
	0 work work k 11 b 2 101 101:101:
");
wrong('guard', 'not seen by the next: it ran', "$short $next
	1.5 a commit 2 k 10
	1.6 a comans 2 t
	0 work work k 10 a 2 100 100:100:
	0 work work k 11 b 2 101 100:101:100
");
wrong('guard', 'not seen by the next: it had not begun', "$short $next
	1.5 a commit 2 k 10
	1.6 a comans 2 t
	0 work work k 10 a 2 101 100:100:
	0 work work k 11 b 2 100 100:101:
");
right('two of one grant', "$short
	1.5 a commit 2 k 10
	1.6 a comans 2 t
	1.7 a commit 3 k 10
	1.8 a comans 3 t
	0 work work k 10 a 2 101 100:100:
	0 work work k 10 a 3 100 100:101:
");
wrong('guard', 'failed, and committed', "$short
	2.5 a commit 2 k 10
	2.6 a comans 2 40001
	0 work work k 10 a 2 100 100:100:
");
wrong('guard', 'with a fence of somebody else', "$short
	1.5 b commit 1 k 10
	1.6 b comans 1 t
	0 work work k 10 b 1 100 100:100:
");
wrong('guard', 'a row that nobody has committed', "$short
	0 work work k 10 a 2 100 100:100:
");
wrong('lost', 'answered, and not there', "$short
	1.5 a commit 2 k 10
	1.6 a comans 2 t
");
right('failed, and not there', "$short
	2.5 a commit 2 k 10
	2.6 a comans 2 40001
");
right('not answered, and not there', "$short
	1.5 a commit 2 k 10
	1.6 a comans 2 08006
");

done_testing();
