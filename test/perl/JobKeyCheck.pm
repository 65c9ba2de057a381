# Checks what a trigger has seen happen to the rows of a job table with a
# key_column against what that promises.
#
# The events are in the order in which they happened, by a sequence.  Each has
# also the number that the sequence had reached before the call began: what
# was committed by then, the call must have seen.  A transaction that was
# rolled back has left no events.
#
# The promises:
#   two       of one key, one row is claimed at a time
#   order     no row is claimed while an earlier one of its key is unfinished
#   attempts  each time that a row is handed out counts, a release takes it back
#   strange   a row goes from ready to claimed to done or failed, or back
#   lost      in the end every row is done or failed

package JobKeyCheck;

use strict;
use warnings FATAL => 'all';

# rows: id => {key (undef: none), rank (by which they are ordered), seen (the
# number by which it was committed)}; events: [id, old status, new status,
# old sid, new sid, old attempts, new attempts, n, since].  Returns the
# violations.
sub check
{
	my ($rows, $events) = @_;
	my (%status, %claimed, %order, @violations);

	for my $id (sort { $rows->{$a}{rank} <=> $rows->{$b}{rank} } keys %{$rows})
	{
		$status{$id} = '0';
		push @{ $order{ $rows->{$id}{key} } }, $id
		  if defined $rows->{$id}{key};
	}

	my %legal = map { $_ => 1 } qw(0>2 0>3 2>2 2>1 2>0 2>3);
	for my $event (@{$events})
	{
		my ($id, $old, $new, $from, $to, $before, $after, $n, $since) =
		  @{$event};
		my $row = $rows->{$id};
		my $key = $row->{key};

		if ($to eq 'hand')
		{
			# when that can be seen is not known
			$row->{seen} = 9e15;
		}
		elsif (!$legal{"$old>$new"} || $status{$id} ne $old)
		{
			push @violations,
			  "strange: row $id went from $old ($status{$id}) to $new";
		}
		my $counted = $new eq '2' ? 1 : 0;
		push @violations, "attempts: row $id went from $before to $after"
		  . " when it went from $old to $new by $to"
		  if $to ne 'hand' && $after != $before + $counted
		  && !($new eq '0' && $after == ($before > 0 ? $before - 1 : 0));
		$status{$id} = $new;
		next if !defined $key;

		if ($new ne '2')
		{
			delete $claimed{$key}{$id};
		}
		elsif ($old ne '2')
		{
			my @others = sort { $a <=> $b } keys %{ $claimed{$key} };
			push @violations,
			  "two: row $id of key $key claimed by $to at $n beside @others"
			  if @others;
			$claimed{$key}{$id} = 1;
			for my $other (@{ $order{$key} })
			{
				last if $rows->{$other}{rank} >= $row->{rank};
				push @violations, "order: row $id of key $key claimed by $to at"
				  . " $n before $other, which was $status{$other}"
				  if $rows->{$other}{seen} < $since
				  && $status{$other} =~ /[02]/;
			}
		}
		# what is finished need not be gone through again
		shift @{ $order{$key} }
		  while @{ $order{$key} } && $status{ $order{$key}[0] } =~ /[13]/
		  && $rows->{ $order{$key}[0] }{seen} < 9e15;
	}
	push @violations, map { "lost: row $_ is $status{$_}" }
	  sort { $a <=> $b } grep { $status{$_} =~ /[02]/ } keys %status;
	return @violations;
}

1;
