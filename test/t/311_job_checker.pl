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

done_testing();
