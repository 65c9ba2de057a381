# All kinds of holders and waiters on the same few names: session, transaction,
# timed and lease, permits, shared holds and their upgrades, several at once,
# places in line, guarded transactions.  Leases lapse, tokens are broken,
# requests are cancelled and time out, sessions are terminated, savepoints and
# transactions rolled back.  TokenCheck.pm looks in the logs for holders that
# exclude each other, for whoever was overtaken in line, and for guarded
# transactions that committed out of order.
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

my $default_ttl = 0.15;

package Client;

use StressClient;

our @ISA = ('StressClient');

# An owner has one length for all of its leases, so that one may be left out,
# and what is not known for sure (which of two renewals came last) is no matter.
sub connect
{
	my ($self) = @_;
	$self->SUPER::connect;
	$self->{ttl} = $self->{shares} ? $default_ttl
	  : (0.03, 0.08, $default_ttl, 0.4)[ rand 4 ];
	$self->{holds} = {};
	$self->insist("SET lock_timeout = '50ms'") if $self->{id} % 5 == 1;
	return;
}

# What to ask for.
sub request
{
	my ($self) = @_;
	my %r = (
		name => $self->{names}[ rand @{ $self->{names} } ],
		scope => 'session',
		mode => ('x', 'x', 's', 's', 's', 2, 2 + int rand 3)[ rand 7 ],
		wait => StressClient::patience());
	my $who = rand;

	# One name has many readers, and the upgrade of one waits for the others.
	$r{mode} = 's' if $r{name} eq 'readers' && rand() < 0.8;
	if ($who < 0.4)
	{
		@r{qw(owner ttl)} = ($self->{owner}, $self->{ttl});
		$r{keep} = 0.03 + rand 0.2 if rand() < 0.5 && !$self->{shares};
		$r{mode} = 'x' if $self->{shares};
	}
	elsif ($who < 0.55)
	{
		$r{ttl} = 0.03 + int(rand(200)) / 1000;
	}
	elsif ($who < 0.75)
	{
		$r{scope} = 'transaction';
	}
	return \%r;
}

# What was left to lapse may be there yet, and is not to be asked for in
# another mode: that is told "again", or is an upgrade.
sub is_left
{
	my ($self, $r) = @_;
	my $until = $self->{holds}{ $r->{owner} // '' }{ $r->{name} };
	return $until && StressClient::now() < $until;
}

sub leave
{
	my ($self, $r, $fence) = @_;
	$self->{holds}{ $r->{owner} // '' }{ $r->{name} } =
	  StressClient::now() + $r->{ttl};
	return $self->SUPER::leave($r, $fence);
}

sub attempt
{
	my ($self) = @_;
	my $r = $self->request;

	return if $self->is_left($r);
	if ($r->{scope} eq 'transaction' || rand() < 0.2)
	{
		$self->insist('BEGIN') or return;
		$self->{tx} = 1;
		$r->{savepoint} = rand() < 0.3;
		return if $r->{savepoint} && !$self->call('SAVEPOINT before');
	}
	return $self->several($r)
	  if $r->{mode} eq 'x'
	  && !defined $r->{keep}
	  && !(defined $r->{owner} && $self->{shares})
	  && rand() < 0.2;

	my ($fence, $error) = $self->ask($r);
	# Whoever has a place comes again for it, or does not.
	while ($r->{queued} && !$error && !defined $fence && rand() < 0.9)
	{
		StressClient::pause(0.02);
		my %again = (%$r, wait => rand() < 0.7 ? 0 : 0.02);
		delete $again{keep} if rand() < 0.2;
		($fence, $error) = $self->ask(\%again);
		last if $self->{gone};
		$r->{queued} = $again{queued};
	}
	return if $self->{gone};
	return $self->after_error($r) if $error;
	return if !defined $fence;

	# Now and then it looks at once what its predecessor has left.
	return if rand() < 0.3 && $self->guarded($r, $fence);
	return $self->use_it($r, $fence);
}

# Several tokens in one call, which does not say which ones are new.  So it is
# not for owners that another session may have got one for.
sub several
{
	my ($self, $r) = @_;
	my %names = map { $_ => 1 } $r->{name},
	  map { $self->{names}[ rand @{ $self->{names} } ] } 1 .. 2;
	my @all = map { { %$r, name => $_ } } sort keys %names;
	my $at = StressClient::now();

	return if grep { $self->is_left($_) } @all;
	$_->{req} = $self->note_call($at, 'ask', $_->{name},
		map { $_ // '-' } @{$_}{qw(owner ttl scope)}, 'x', '-', '-')
	  for @all;
	my $own = StressClient::owner_of($r);
	my $list = join ',', map { "'$_->{name}'" } @all;
	my ($row, $error) = $self->call("SELECT token_get_all(ARRAY[$list], wait => "
		  . StressClient::interval_of($r->{wait})
		  . ', ttl => ' . StressClient::interval_of($r->{ttl})
		  . ", owner => $own, scope => '$r->{scope}'), "
		  . join ', ', map { "token_fence('$_->{name}', owner => $own)" } @all);
	for my $i (0 .. $#all)
	{
		my $fence = $row && $row->[0] eq 't' ? $row->[ $i + 1 ] : undef;
		# It may have lapsed before it could be asked for its number.
		$self->note('ans', $all[$i]{req},
			!$row ? ($error, '-', '-')
			: $row->[0] eq 'f' ? ('f', '-', 'busy')
			: defined $fence   ? ('t', $fence, 'new')
			:                    ('lapsed', '-', '-'));
		$all[$i]{fence} = $fence;
	}
	if ($error)
	{
		return if $self->{gone};
		my $context = $self->{context};
		for my $one (@all)
		{
			$self->{context} = $context;
			$self->after_error($one);
		}
		return;
	}
	StressClient::pause(0.004);
	for my $one (grep { defined $_->{fence} } @all)
	{
		last if $self->{gone};
		$self->put($one, $one->{fence}, 'put');
	}
	return;
}

# Work, in all ways in which a token may be used and come back.
sub use_it
{
	my ($self, $r, $fence) = @_;

	StressClient::pause($r->{mode} eq 's' ? 0.02 : 0.004);
	if ($r->{mode} eq 's' && rand() < 0.5)
	{
		$fence = $self->upgrade($r, $fence);
		return if !defined $fence;
	}
	if (defined $r->{ttl} && rand() < 0.3)
	{
		for (1 .. 1 + int(rand(3)))
		{
			return if $self->renew($r, $fence);
			StressClient::pause(0.01);
		}
	}
	return
	  if rand() < 0.05
	  && $self->meanwhile($r, $fence, 'SELECT pg_advisory_unlock_all()');
	return if rand() < 0.5 && $self->guarded($r, $fence);
	return $self->give_back($r, $fence);
}

# Returns the fence that it has then, or none if it has given it back.
sub upgrade
{
	my ($self, $r, $from) = @_;
	my %up = (%$r, mode => 'x', keep => undef, from => $from,
		wait => StressClient::patience());
	my $at = StressClient::now();
	my ($fence, $error) = $self->ask(\%up);

	if (!$error)
	{
		return $from if !defined $fence;
		$r->{mode} = 'x';
		return $fence;
	}
	# An answer that was lost may have been a grant.
	return if $self->{gone} || $self->failed($r, $from, $at);
	$self->note_call($at, 'put', $r->{name}, $from);
	$self->insist("SELECT token_put('$r->{name}', owner => "
		  . StressClient::owner_of($r) . ')');
	return;
}

# A transaction that commits only while the token is held; true if the token is
# gone, or may be.
sub guarded
{
	my ($self, $r, $fence) = @_;
	my $own = StressClient::owner_of($r);

	if (!$self->{tx})
	{
		$self->insist('BEGIN') or return 1;
		$self->{tx} = 1;
	}
	# Some commits stand still until somebody cancels them.
	return 1
	  if rand() < 0.4
	  && $self->meanwhile($r, $fence, 'SET LOCAL synchronous_commit = on');
	# One that is taken back with its savepoint is none.
	if (rand() < 0.1)
	{
		for my $sql ('SAVEPOINT g',
			"SELECT token_guard('$r->{name}', owner => $own, fence => $fence)",
			'ROLLBACK TO g')
		{
			my $at = StressClient::now();
			my ($row, $error) = $self->call($sql, '55000');
			next if !$error;
			$self->failed($r, $fence, $at);
			return 1;
		}
	}
	my $at = StressClient::now();
	my ($row, $error) = $self->call("SELECT token_guard('$r->{name}',
		owner => $own, fence => $fence)", '55000');
	$error = ($self->call("INSERT INTO work SELECT '$r->{name}', $fence,
		'$r->{mode}', pg_current_xact_id(), pg_current_snapshot()"))[1]
	  if !$error;
	if ($error)
	{
		# It may be held on, and lapses or goes with the session.
		$self->failed($r, $fence, $at);
		$self->put($r, $fence, 'put') if !$self->{gone} && $r->{scope} ne 'transaction';
		return 1;
	}
	StressClient::pause(rand() < 0.2 && defined $r->{ttl} ? 1.5 * $r->{ttl} : 0.01);

	my $own_end = $r->{scope} eq 'transaction';
	$at = StressClient::now();
	my $req = $self->note_call($at, 'commit', $r->{name}, $fence);
	$self->note_call($at, 'put', $r->{name}, $fence) if $own_end;
	(undef, $error) = $self->call('COMMIT', '40001');
	$self->note('comans', $req, $error // 't');
	return 1 if $self->{gone};
	if ($error && $error ne '40001')
	{
		$self->failed($r, $fence, $at);
		$self->put($r, $fence, 'put') if !$self->{gone} && !$own_end;
		return 1;
	}
	$self->{tx} = 0;
	return $own_end;
}

# The end of it: a lease may be left to lapse, and now and then is used for
# longer than it lasts.
sub give_back
{
	my ($self, $r, $fence) = @_;
	my $how = 'put';

	if ($r->{scope} eq 'transaction')
	{
		$how = !$self->{tx} ? 'put'
		  : rand() < 0.4 ? 'commit'
		  : rand() < 0.5 ? 'rollback'
		  : $r->{savepoint} && rand() < 0.7 ? 'savepoint' : 'put';
	}
	elsif (!defined $r->{owner} && rand() < 0.2)
	{
		$how = $self->{tx} || rand() < 0.5 ? 'all' : 'discard';
	}
	elsif (defined $r->{ttl})
	{
		my $fate = rand;
		StressClient::pause(2 * $r->{ttl}) if $fate < 0.15;
		return $self->leave($r, $fence) if $fate > 0.9;
	}
	return $self->put($r, $fence, $how);
}

package main;

# For some commits the server waits for a standby that there is none, between
# the check and the moment at which others see them.  Meanwhile tokens lapse and
# are broken.
my $node = new_server('modes',
	init => { allows_streaming => 1 },
	bare => 1,
	conf => $TokenStress::conf
	  . "tokenlock.default_ttl = '" . 1000 * $default_ttl . "ms'\n"
	  . "synchronous_standby_names = 'nobody'\nsynchronous_commit = local\n");
$node->safe_psql('postgres', 'CREATE EXTENSION tokenlock;
	CREATE TABLE work (name text, fence bigint, mode text, xid xid8,
		snapshot pg_snapshot)');

my ($count, $pairs) = TokenStress::run(
	node => $node,
	class => 'Client',
	clients => full_run() ? 48 : 32,
	seconds => $ENV{TOKENLOCK_STRESS_SECONDS} || (full_run() ? 70 : 20),
	seed => $ENV{TOKENLOCK_STRESS_SEED} || time,
	names => [ ('a') x 3, ('b') x 2, ('readers') x 2, qw(c d e f) ],
	breaks => 0.5,
	stopped_commits => 1,
	work => 'work',
	least => {
		grants => 60,
		waited => 20,
		queued => 5,
		busy => 20,
		failed => 1,
		put => 40,
		break => 10,
		renew => 10,
		lapsed => 1,
		upgraded => 1,
		work => 10,
		lost => 0.5,
		stop => 1,
		killed => 1
	});

# Everybody has waited for everybody, given the time.
my @held = qw(session timed transaction lease permit shared);
my @waited = (@held, 'upgrade', 'place');
my @missing = grep { !$pairs->{$_} }
  map { my $h = $_; map { "$h > $_" } @waited } @held;
note('who was seen waiting for whom: ' . join ', ',
	map { "$_ $pairs->{$_}" } sort keys %$pairs);
SKIP:
{
	skip "only $count->{waited} waits", 1 if $count->{waited} < 1000;
	cmp_ok(scalar(@missing), '<', 12, 'most kinds have waited for most kinds')
	  or diag("missing: @missing");
}

$node->stop;
done_testing();
