# Dozens of sessions take, wait for, renew, let lapse and drop a few tokens;
# some are cancelled, some terminated, some clients killed.  Everybody writes
# down what it sent and what it was answered, and TokenCheck.pm then looks for
# two holders at a time, for overtaking in line, for fences that shrink, and
# for grants that were lost or kept by mistake.
#
# TOKENLOCK_STRESS_SECONDS sets for how long; the seed is printed, and
# TOKENLOCK_STRESS_SEED repeats it (as far as a race can be repeated).

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use Test::More;
use TokenStress;
use TokenlockTest;

package Client;

use StressClient;

our @ISA = ('StressClient');

sub attempt
{
	my ($self) = @_;
	my %r = (
		name => $self->{names}[ rand @{ $self->{names} } ],
		scope => 'session',
		wait => StressClient::patience());

	# Leases are short, so that some lapse in use.
	my $kind = rand;
	if ($kind < 0.4)
	{
		@r{qw(owner ttl)} = ($self->{owner}, 0.15);
	}
	elsif ($kind < 0.5)
	{
		$r{ttl} = 0.02 + int(rand(100)) / 1000;
	}
	elsif ($kind < 0.7)
	{
		$r{scope} = 'transaction';
	}

	if ($r{scope} eq 'transaction' || rand() < 0.1)
	{
		$self->insist('BEGIN') or return;
		$self->{tx} = 1;
	}
	my ($fence, $error) = $self->ask(\%r);
	return if $self->{gone};
	return $self->after_error(\%r) if $error;
	return if !defined $fence;

	# Work, with or without looking after the lease.
	StressClient::pause(0.004);
	if (defined $r{ttl} && rand() < 0.5)
	{
		for (1 .. 1 + int(rand(3)))
		{
			return if $self->renew(\%r, $fence);
			StressClient::pause(0.01);
		}
	}
	return
	  if rand() < 0.05
	  && $self->meanwhile(\%r, $fence, 'SELECT pg_advisory_unlock_all()');
	return
	  if $self->{tx}
	  && rand() < 0.2
	  && $self->meanwhile(\%r, $fence, 'SAVEPOINT s');

	# The end of it: a lease may be left to lapse, and now and then is used
	# for longer than it lasts.
	my $how = 'put';
	if ($r{scope} eq 'transaction')
	{
		$how = !$self->{tx} ? 'put'
		  : rand() < 0.5 ? 'commit' : rand() < 0.7 ? 'rollback' : 'put';
	}
	elsif (!defined $r{owner} && rand() < 0.2)
	{
		$how = $self->{tx} || rand() < 0.5 ? 'all' : 'discard';
	}
	elsif (defined $r{ttl})
	{
		my $fate = rand;
		StressClient::pause(2 * $r{ttl}) if $fate < 0.15;
		if ($fate > 0.9)
		{
			$self->leave(\%r, $fence);
			return;
		}
	}
	$self->put(\%r, $fence, $how);
	return;
}

package main;

my $seconds = $ENV{TOKENLOCK_STRESS_SECONDS} || (full_run() ? 120 : 25);
my $node = new_server('stress', conf => $TokenStress::conf);

TokenStress::run(
	node => $node,
	class => 'Client',
	clients => full_run() ? 60 : 36,
	seconds => $seconds,
	seed => $ENV{TOKENLOCK_STRESS_SEED} || time,
	# A few names that all want, some that few want.
	names => [ ('hot') x 4, ('warm 1', 'warm 2') x 2, map { "cool $_" } 1 .. 6 ],
	least => {
		grants => 60,
		waited => 20,
		busy => 20,
		failed => 1,
		put => 40,
		renew => 10,
		lapsed => 1,
		stop => 5,
		killed => 1
	});

$node->stop;
done_testing();
