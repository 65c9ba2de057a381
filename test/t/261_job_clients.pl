# The workers of examples/ in Java and C, as 260_job_clients.pl has the others.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use ClientTest;
use Test::More;
use TokenlockTest;

my $examples = examples();
my ($node) = client_server('clients');

subtest 'Java' => sub {
	my @java = java() or return;
	try_workers('java', 143,
		with_options(@java, "$examples/Worker.java", '--url', jdbc_url()));
};

subtest 'C' => sub {
	my $program = built('worker') or return;
	try_workers('c', 0, sub { return ($program, @_) });
};

$node->stop;
done_testing();
