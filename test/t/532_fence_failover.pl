# A standby that was cut off, and has not heard that the primary began a new
# epoch of fences after its promotion, goes on above it nevertheless.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $one = new_server('one',
	init => { allows_streaming => 1 },
	conf => "fsync = on\n");

sub standby_of
{
	my ($node, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$node->backup($name);
	$standby->init_from_backup($node, $name, has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby);
	return $standby;
}

# The fence of a session's token, which leaves no grace behind.
sub fence
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		"SELECT fence FROM token_request('leader')");
}

my @fences = fence($one);
my $two = standby_of($one, 'two');
$one->stop('immediate');
$two->promote;

# the third has the second's timeline, but not what it does from now on
my $three = standby_of($two, 'three');
$three->stop;
push @fences, fence($two);
$two->stop('immediate');
$two->start;
push @fences, fence($two);
$two->stop('immediate');

$three->start;
$three->promote;
push @fences, fence($three);

for my $i (1 .. $#fences)
{
	cmp_ok($fences[$i], '>', $fences[ $i - 1 ], "fence $i is larger");
}
$three->stop;
done_testing();
