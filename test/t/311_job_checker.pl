# The checker of the stress run of jobs finds what it is there for.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JobCheck;
use Test::More;

sub finds
{
	my ($holds, $changes, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @kinds = map { /^(\w+):/ } JobCheck::check($holds, $changes);
	return is("@kinds", $expected, $name);
}

finds([ [ 'a', 1, 10, 20 ], [ 'b', 1, 20, 30 ], [ 'a', 2, 5, 50 ] ],
	[ [ 1, 0, 2, '', 'a', 9 ], [ 1, 2, 2, 'a', 'b', 20 ],
		[ 1, 2, 1, 'b', 'b', 30 ] ], '', 'nothing to complain of');
finds([ [ 'a', 1, 10, 20 ], [ 'a', 1, 15, 30 ] ], [], '',
	'one worker may get a row again');
finds([ [ 'a', 1, 10, 20 ], [ 'b', 1, 19, 30 ] ], [], 'overlap', 'two hold it');
finds([ [ 'a', 1, 10, 40 ], [ 'a', 1, 15, 20 ], [ 'b', 1, 30, 50 ] ], [],
	'overlap', 'one of them for longer');
finds([], [ [ 1, 2, 1, 'a', 'a', 1 ], [ 1, 1, 2, 'a', 'b', 2 ] ],
	'twice', 'handed out when done');
finds([], [ [ 1, 1, 1, 'a', 'a', 1 ] ], 'twice', 'finished again');
finds([], [ [ 1, 1, 0, 'a', 'hand', 1 ], [ 1, 0, 2, 'hand', 'a', 2 ] ], '',
	'set back by hand');
finds([], [ [ 1, 0, 1, 'a', 'a', 1 ] ], 'strange', 'done without a claim');
finds([ [ 'a', 1, 10, 20 ] ], [ [ 1, 2, 2, 'a', 'b', 15 ] ],
	'robbed', 'taken over from the living');
finds([ [ 'a', 1, 10, 20 ] ], [ [ 1, 2, 0, 'a', '', 15 ] ],
	'robbed', 'released by somebody else');

# Somebody waits from 10 to 20, and a second is soon.
sub slept
{
	my ($ready, $changes, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($slept) =
	  JobCheck::check_waits([ [ 'w', 10, 20 ] ], $ready, $changes, 1);
	my @kinds = map { /^(\w+):/ } @{$slept};
	return is("@kinds", $expected, $name);
}

slept([ [ 1, 12, 12.1 ] ], [ [ 1, 0, 2, '', 'a', 13 ] ], '', 'claimed soon');
slept([ [ 1, 12, 12.1 ] ], [ [ 1, 0, 2, '', 'a', 12.05 ] ], '',
	'before the one who made it ready knows that it is');
slept([ [ 1, 12, 12.1 ] ], [ [ 1, 0, 2, '', 'a', 13.2 ] ], 'slept', 'late');
slept([ [ 1, 12, 12.1 ] ], [ [ 1, 0, 2, '', 'a', 11 ] ], 'slept',
	'claimed before, and not again');
slept([ [ 1, 12, 12.1 ] ], [ [ 2, 0, 2, '', 'a', 13 ] ], 'slept',
	'another was claimed');
slept([ [ 1, 9, 9.1 ] ], [], '', 'began to wait later');
slept([ [ 1, 19.5, 19.6 ] ], [], '', 'would not have waited much longer');

done_testing();
