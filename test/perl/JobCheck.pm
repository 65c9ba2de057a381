# Checks what a stress run of job workers has written down against what
# claim_jobs promises.
#
# A hold is the time during which a worker certainly had a row: from the answer
# that gave it until the worker sent its finish or release, or its ttl was
# over, counted from before its last call.  A change is what a trigger has
# seen happen to a row.  All times are of one clock of one machine.
#
# The promises:
#   overlap  no row is held by two workers at a time
#   robbed   no row is taken from a worker that holds it
#   twice    a row that is done stays so, unless somebody set it back by hand
#   strange  a row goes from ready to claimed to done, or back to ready
#   slept    nobody waits for long while there is a row that is ready

package JobCheck;

use strict;
use warnings FATAL => 'all';

# holds: [sid, id, from, to]; changes, in their order:
# [id, old status, new status, old sid, new sid, at].  Returns the violations.
sub check
{
	my ($holds, $changes) = @_;
	my (%holds_of, @violations);

	push @{ $holds_of{ $_->[1] } }, $_ for @{$holds};
	for my $id (sort keys %holds_of)
	{
		my $last;
		for my $hold (sort { $a->[2] <=> $b->[2] } @{ $holds_of{$id} })
		{
			push @violations,
			  "overlap: row $id held by $last->[0] until $last->[3]"
			  . " and by $hold->[0] from $hold->[2]"
			  if $last && $last->[0] ne $hold->[0] && $hold->[2] < $last->[3];
			$last = $hold if !$last || $hold->[3] > $last->[3];
		}
	}

	my %legal = map { $_ => 1 } qw(0>2 2>2 2>1 2>0);
	for my $change (@{$changes})
	{
		my ($id, $old, $new, $from, $to, $at) = @{$change};
		next if $to eq 'hand';
		if ($old eq '1')
		{
			push @violations, "twice: row $id was done, and then $new by $to";
		}
		elsif (!$legal{"$old>$new"})
		{
			push @violations, "strange: row $id went from $old to $new";
		}
		next if $old ne '2' || ($new eq '2' && $from eq $to);
		for my $hold (@{ $holds_of{$id} // [] })
		{
			push @violations,
			  "robbed: row $id became $new of $to at $at, while $hold->[0]"
			  . " held it from $hold->[2] to $hold->[3]"
			  if $hold->[0] ne $to && $hold->[2] < $at && $at < $hold->[3];
		}
	}
	return @violations;
}

# waits: [sid, from, to]; ready: [id, not before, at the latest]; changes as
# above.  Who waited from before a row was ready must not have gone on for so
# many seconds, unless the row was claimed by then.  Returns the violations,
# and how late each row was claimed that somebody waited for, in order.
sub check_waits
{
	my ($waits, $ready, $changes, $soon) = @_;
	my (%claims_of, @violations, @late);

	for my $change (@{$changes})
	{
		my ($id, $old, $new, $from, $to, $at) = @{$change};
		push @{ $claims_of{$id} }, $at if $old eq '0' && $new eq '2';
	}
	for my $row (@{$ready})
	{
		my ($id, $begin, $sure) = @{$row};
		my ($claimed) = grep { $_ >= $begin } @{ $claims_of{$id} // [] };
		my @there = grep { $_->[1] <= $begin && $_->[2] >= $sure } @{$waits};

		push @late, $claimed - $sure if defined $claimed && @there;
		next if defined $claimed && $claimed < $sure + $soon;
		my ($long) = grep { $_->[2] >= $sure + $soon } @there;
		push @violations, "slept: row $id was ready at $sure, and claimed at "
		  . ($claimed // 'the end') . ", while $long->[0] waited until $long->[2]"
		  if $long;
	}
	return (\@violations, [ sort { $a <=> $b } @late ]);
}

1;
