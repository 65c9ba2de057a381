# Checks the logs of clients that have lived through crashes and failovers.
#
# A client believes that it holds a token from when a grant's answer has come
# until the ttl, counted by its own clock from before it sent the call, is over,
# or until it sends a put.  A shorter end it believes from when it asks for it.
# What it is told to be lost after a crash it believes to that end all the same,
# as it may be at work.  An answer that never came is no belief, though the
# token may have been granted and its fence is used.
#
# The log is that of TokenCheck.pm, of owners' leases that each have alone; each
# client has one owner of its own, and one call after the other.  Added are
#
#     guard  REQ NAME FENCE                a guard is about to be asked for
#     guans  REQ ANSWER                    t, or an SQLSTATE
#     work   NAME FENCE CLIENT REQ XID SNAPSHOT
#                                          a guarded transaction whose commit was
#                                            that call has committed, and after
#                                            its guard it had that snapshot
#     crash  UNTIL KIND                    from this time until that leases in
#                                            memory were lost
#     event  UNTIL KIND                    something else happened to the server
#
# The promises:
#   overlap   nobody is granted a token while somebody else believes to hold it
#   fence     later beliefs have larger fences; so has a grant that was asked for
#             after another was answered; no two grants of a name have the same
#   guard     a guarded transaction commits only while its grant exists, has a
#             fence that its client was given, sees all that those with smaller
#             fences have committed, and is not there if its commit has failed
#   lost      what was answered to be committed is there
#   early     what is believed is not answered to be gone; but for leases that
#             are not longer than the grace, after a crash

package HistoryCheck;

use strict;
use warnings FATAL => 'all';

use List::Util qw(min);
use TokenCheck;

our @ISA = ('TokenCheck');

# HistoryCheck->new(SECONDS of tokenlock.grace, FILES)
sub new
{
	my ($class, $grace, @files) = @_;
	local $HistoryCheck::grace = $grace;
	return $class->SUPER::new(@files);
}

our $grace;

sub read_line
{
	my ($self, $t, $client, $event, @f) = @_;

	$self->{last} = $t if $t > ($self->{last} // 0);
	if ($event eq 'crash')
	{
		push @{ $self->{crashes} }, { from => $t, until => $f[0] };
		$self->{count}{"crash $f[1]"}++;
	}
	elsif ($event eq 'event')
	{
		$self->{count}{"event $f[1]"}++;
	}
	elsif ($event eq 'work')
	{
		my %w;
		@w{qw(name fence client req xid snapshot)} = @f;
		push @{ $self->{work}{ $f[0] } }, \%w;
		$self->{count}{work}++;
	}
	elsif ($event eq 'guard')
	{
		$self->SUPER::read_line($t, $client, 'commit', @f);
		$self->{call}{$client}{ $f[0] }{type} = 'guard';
		$self->{count}{commit}--;
	}
	elsif ($event eq 'guans')
	{
		$self->SUPER::read_line($t, $client, 'comans', @f);
	}
	else
	{
		$self->SUPER::read_line($t, $client, $event, @f);
	}
	return;
}

sub judge
{
	my ($self) = @_;
	my %calls_of;

	$self->{crashes} //= [];
	$self->{beliefs} = {};    # name -> beliefs
	$self->{given} = {};      # name, fence -> the client, asked, answered
	$self->{count}{$_} //= 0
	  for qw(unanswered beliefs believed kept excused grace late);
	push @{ $calls_of{ $_->{client} } }, $_ for @{ $self->{calls} };
	$self->follow(@{ $calls_of{$_} }) for sort keys %calls_of;
	for my $name (sort keys %{ $self->{given} })
	{
		$self->{count}{grants} += keys %{ $self->{given}{$name} };
		$self->check_overlap($name);
		$self->check_fences($name);
	}
	$self->check_commits;
	$self->check_work($_) for sort keys %{ $self->{work} };
	return;
}

#
# What a client believes
#

# The calls of one client, in their order.
sub follow
{
	my ($self, @calls) = @_;
	my $count = $self->{count};
	my (%belief, %pending);

	for my $c (@calls)
	{
		my $a = $c->{answer} // 'none';
		my $b = $belief{ $c->{name} };

		$count->{unanswered}++ if $a eq 'none' || $a !~ /^(t|f|40001|55000)$/;
		$count->{grace}++ if $c->{type} eq 'ask' && ($c->{how} // '') eq 'grace';
		if ($c->{type} eq 'put')
		{
			next if !$b || $b->{fence} != $c->{fence};
			$self->told_gone($b, $c) if $a eq 'f';
			$b->{until} = $c->{sent} if $c->{sent} < $b->{until};
			delete $belief{ $c->{name} };
		}
		elsif ($c->{type} eq 'ask' && $a eq 't')
		{
			if (!$b || $b->{fence} != $c->{fence} || $c->{how} eq 'new')
			{
				$self->told_gone($b, $c) if $b && $b->{fence} != $c->{fence};
				$b = $belief{ $c->{name} } = $self->believe($c, $pending{ $c->{name} });
			}
			$self->confirm($b, $c);
			delete $pending{ $c->{name} };
		}
		elsif ($c->{type} eq 'renew' && $a eq 't')
		{
			$self->confirm($b, $c) if $b && $b->{fence} == $c->{fence};
		}
		elsif ($a =~ /^(f|40001|55000)$/)
		{
			$self->told_gone($b, $c) if $b;
		}
		elsif ($a ne 't' && defined $c->{ttl})
		{
			# Nobody knows whether it was done.
			$pending{ $c->{name} } //= $c->{sent} if $c->{type} eq 'ask';
			next if !$b;
			$b->{durable} = 0 if $c->{ttl} <= $grace;
			$b->{until} = $c->{sent} + $c->{ttl}
			  if $c->{sent} + $c->{ttl} < $b->{until};
		}
		elsif ($b)
		{
			# a guard, or a commit: it exists, or nobody knows
			$self->count_kept($b, $c) if $a eq 't';
		}
	}
	return;
}

# A new belief.  If it is of an answer that was lost before, it may have been
# granted when that was asked for.
sub believe
{
	my ($self, $c, $pending) = @_;
	my ($name, $fence) = @{$c}{qw(name fence)};
	my $given = $self->{given}{$name}{$fence};
	my $b = {
		name => $name,
		fence => $fence,
		client => $c->{client},
		from => $c->{recv} };

	if ($given)
	{
		# the put of it may have been lost
		$self->violation('fence',
			"$name: fence $fence was given to $given->{client} and to "
			  . "$c->{client}")
		  if $given->{client} ne $c->{client} || $c->{how} eq 'new';
	}
	else
	{
		$self->violation('fence',
			"$name: $c->{client} is said to have had fence $fence, and never "
			  . 'asked for it')
		  if $c->{how} ne 'new' && !defined $pending;
		$self->{given}{$name}{$fence} = {
			fence => $fence,
			client => $c->{client},
			asked => $c->{how} eq 'new' ? $c->{sent} : $pending // $c->{sent},
			answered => $c->{recv} };
	}
	push @{ $self->{beliefs}{$name} }, $b;
	$self->{count}{beliefs}++;
	return $b;
}

# An answer: it has the token, so long.
sub confirm
{
	my ($self, $b, $c) = @_;

	$self->count_kept($b, $c) if defined $b->{confirmed};
	$b->{confirmed} = $c->{sent};
	$b->{until} = $c->{sent} + $c->{ttl};
	$b->{durable} = $c->{ttl} > $grace;
	return;
}

# Was there a crash since the last answer, and before this one?
sub crashed
{
	my ($self, $b, $c) = @_;
	return grep { $_->{until} > $b->{confirmed} && $_->{from} < $c->{recv} }
	  @{ $self->{crashes} };
}

sub count_kept
{
	my ($self, $b, $c) = @_;
	$self->{count}{kept}++
	  if grep { $_->{from} > $b->{confirmed} && $_->{until} < $c->{sent} }
	  @{ $self->{crashes} };
	return;
}

sub told_gone
{
	my ($self, $b, $c) = @_;

	return if $b->{told}++ || $c->{recv} >= $b->{until};
	if (!$b->{durable} && $self->crashed($b, $c))
	{
		$self->{count}{excused}++;
		return;
	}
	$self->violation('early',
		sprintf '%s: %s of %s at %.6f says that %s lease with fence %s is gone, '
		  . 'which was to last until %.6f',
		$b->{name}, $c->{type}, $c->{client}, $c->{recv},
		$b->{durable} ? 'a long' : 'a', $b->{fence}, $b->{until});
	return;
}

#
# Who believes at the same time?
#

# One that was over when its answer came is a point in time: it was granted by
# then, and after all of a smaller fence.
sub check_overlap
{
	my ($self, $name) = @_;
	my (@active, $last);

	for my $b (sort { $a->{from} <=> $b->{from} } @{ $self->{beliefs}{$name} })
	{
		my $real = $b->{until} > $b->{from};
		@active = grep { $_->{until} > $b->{from} } @active;
		for my $h (grep { $_->{client} ne $b->{client} } @active)
		{
			next if !$real && $h->{fence} > $b->{fence};
			$self->violation('overlap',
				sprintf '%s: %s believes to hold it with fence %s until %.6f, '
				  . '%s with fence %s from %.6f',
				$name, @{$h}{qw(client fence until)},
				@{$b}{qw(client fence from)});
		}
		next if !$real;
		$self->violation('fence',
			"$name: $b->{client} believes at $b->{from} with fence $b->{fence}, "
			  . "before it $last->{client} with $last->{fence}")
		  if $last && $last->{fence} > $b->{fence};
		$last = $b;
		push @active, $b;
		$self->{count}{believed} += min($b->{until}, $self->{last}) - $b->{from};
	}
	return;
}

sub check_fences
{
	my ($self, $name) = @_;
	my @given = values %{ $self->{given}{$name} };
	my @by_answer = sort { $a->{answered} <=> $b->{answered} } @given;
	my $max;

	for my $g (sort { $a->{asked} <=> $b->{asked} } @given)
	{
		while (@by_answer && $by_answer[0]{answered} < $g->{asked})
		{
			my $earlier = shift @by_answer;
			$max = $earlier if !$max || $earlier->{fence} > $max->{fence};
		}
		$self->violation('fence',
			"$name: $g->{client} was given $g->{fence} after $max->{client} had "
			  . $max->{fence})
		  if $max && $g->{fence} < $max->{fence};
	}
	return;
}

#
# Guarded transactions
#
sub check_commits
{
	my ($self) = @_;
	my %row;

	for my $w (map { @$_ } values %{ $self->{work} })
	{
		my $c = $self->{call}{ $w->{client} }{ $w->{req} };
		my $given = $self->{given}{ $w->{name} }{ $w->{fence} };
		my $what = "$w->{name}: transaction $w->{xid} of $w->{client} with "
		  . "fence $w->{fence}";

		$row{ $w->{client} }{ $w->{req} } = 1;
		if (!$c || $c->{type} ne 'commit' || $c->{fence} != $w->{fence})
		{
			$self->violation('guard', "$what has no commit");
			next;
		}
		$w->{sent} = $c->{sent};
		$self->violation('guard', "$what has committed, and failed")
		  if ($c->{answer} // '') eq '40001';
		$self->violation('guard', "$what has not its client's fence")
		  if !$given || $given->{client} ne $w->{client};
		$self->{count}{late}++ if ($c->{answer} // '') ne 't';
	}
	for my $c (grep { $_->{type} eq 'commit' } @{ $self->{calls} })
	{
		$self->violation('lost',
			"$c->{name}: $c->{client} was told at $c->{recv} that it has "
			  . "committed, with fence $c->{fence}")
		  if ($c->{answer} // '') eq 't' && !$row{ $c->{client} }{ $c->{req} };
	}
	return;
}

# By their fences: none begins to commit when a larger one is known to be given,
# and each sees those before.
sub check_work
{
	my ($self, $name) = @_;
	my @given = sort { $b->{fence} <=> $a->{fence} }
	  values %{ $self->{given}{$name} };
	my @work = sort { $a->{fence} <=> $b->{fence} } @{ $self->{work}{$name} };
	my ($next, $highest, %before, @same);

	for my $w (reverse @work)
	{
		while (@given && $given[0]{fence} > $w->{fence})
		{
			my $g = shift @given;
			$next = $g if !$next || $g->{answered} < $next->{answered};
		}
		$self->violation('guard',
			"$name: $w->{client} commits at $w->{sent} with fence $w->{fence}, "
			  . "and $next->{client} had $next->{fence} at $next->{answered}")
		  if $next && defined $w->{sent} && $next->{answered} < $w->{sent};
	}
	for my $w (@work)
	{
		my ($xmin, $xmax, $running) = split /:/, $w->{snapshot};

		if (@same && $same[0]{fence} != $w->{fence})
		{
			for my $s (@same)
			{
				$before{ $s->{xid} } = $s;
				$highest = $s if !$highest || $s->{xid} > $highest->{xid};
			}
			@same = ();
		}
		push @same, $w;
		my @unseen = grep { defined } map { $before{$_} } split /,/, $running // '';
		push @unseen, $highest if $highest && $highest->{xid} >= $xmax;
		$self->violation('guard',
			"$name: transaction $w->{xid} with fence $w->{fence} does not see "
			  . "$_->{xid} with fence $_->{fence}")
		  for @unseen;
	}
	return;
}

1;
