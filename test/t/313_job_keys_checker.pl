# The checker of the stress run of keys finds what it is there for.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JobKeyCheck;
use Test::More;

# Rows 1 and 2 are of key a, 3 and 4 have none; 2 was committed at 50.
sub rows
{
	return {
		1 => { key => 'a', rank => 1, seen => 0 },
		2 => { key => 'a', rank => 2, seen => 50 },
		3 => { key => undef, rank => 3, seen => 0 },
		4 => { key => undef, rank => 4, seen => 0 }
	};
}

my @rest = ([ 3, 0, 2, '', 'v', 0, 1, 90, 89 ], [ 4, 0, 2, '', 'w', 0, 1, 91, 89 ],
	[ 3, 2, 1, 'v', 'v', 1, 1, 92, 89 ], [ 4, 2, 1, 'w', 'w', 1, 1, 93, 89 ]);

sub finds
{
	my ($expected, $name, @events) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @kinds = map { /^(\w+):/ } JobKeyCheck::check(rows(), \@events);
	return is("@kinds", $expected, $name);
}

my @first = ([ 1, 0, 2, '', 'v', 0, 1, 10, 9 ], [ 1, 2, 1, 'v', 'v', 1, 1, 20, 9 ]);
my @second = ([ 2, 0, 2, '', 'w', 0, 1, 60, 55 ], [ 2, 2, 1, 'w', 'w', 1, 1, 70, 55 ]);

finds('', 'nothing to complain of', @first, @second, @rest);
finds('two order', 'two of one key at a time',
	$first[0], $second[0], $first[1], $second[1], @rest);
finds('order', 'the second one first', @second, @first, @rest);
finds('order', 'while the first one waits to be tried again',
	$first[0], [ 1, 2, 0, 'v', '', 1, 1, 15, 9 ], @second,
	[ 1, 0, 2, '', 'v', 1, 2, 75, 74 ], [ 1, 2, 3, 'v', 'v', 2, 2, 76, 74 ], @rest);
finds('', 'the first was given up',
	$first[0], [ 1, 2, 3, 'v', 'v', 1, 1, 15, 9 ], @second, @rest);
{
	my $rows = rows();
	$rows->{1}{seen} = 58;
	is_deeply([ JobKeyCheck::check($rows, [ @second, @first, @rest ]) ], [],
		'an earlier one was committed too late to be seen');
}
finds('', 'taken over', $first[0], [ 1, 2, 2, 'v', 'w', 1, 2, 15, 14 ],
	[ 1, 2, 1, 'w', 'w', 2, 2, 20, 9 ], @second, @rest);
finds('attempts', 'taken over without an attempt', $first[0],
	[ 1, 2, 2, 'v', 'w', 1, 1, 15, 14 ], [ 1, 2, 1, 'w', 'w', 1, 1, 20, 9 ],
	@second, @rest);
finds('strange', 'done without a claim', $first[1], @second, @rest);
finds('lost', 'not finished', @first, $second[0], @rest);
finds('', 'set back by hand', @first, @second,
	[ 1, 1, 0, 'v', 'hand', 1, 1, 71, 0 ], [ 1, 0, 2, 'hand', 'v', 1, 2, 80, 79 ],
	[ 1, 2, 1, 'v', 'v', 2, 2, 85, 79 ], @rest);

done_testing();
