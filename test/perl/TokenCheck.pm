# Checks the event logs of a stress run against what tokens promise.
#
# It knows nothing of the server: it reasons from what clients sent and were
# answered, and when.  All times are of one clock, which no step moves, of one
# machine.
#
# A log line has tab-separated fields: time, client, event, and
#
#     open   PID                           a session of the client begins
#     ask    REQ NAME OWNER TTL SCOPE [MODE KEEP FROM]
#                                          a request is about to be sent
#     ans    REQ GRANTED FENCE ANSWER      its answer has come
#     put    REQ NAME FENCE                a put, or the end of the transaction
#     putans REQ ANSWER                      or session, is about to be sent
#     break  REQ NAME FENCE                somebody else is about to end a grant
#     breans REQ ANSWER
#     renew  REQ NAME FENCE TTL            a renewal is about to be sent
#     renans REQ ANSWER
#     commit REQ NAME FENCE                the commit of a transaction which
#     comans REQ ANSWER                      that grant guards is about to be sent
#     work   NAME FENCE MODE XID SNAPSHOT  such a transaction has committed, and
#                                            after its guard it had that snapshot
#     probe  NAME FENCE                    what a session found it holds, after
#                                            an error of its only request
#     end                                  the client is about to go
#     stop   CLIENT|PID                    somebody is about to end that client
#                                            or that server process
#     seen   SENT NAME PID                 the waiter slept in line, as a sample
#                                            sent at SENT and now answered says
#
# MODE is x (to have it alone, the default), s (shared) or a number of permits;
# KEEP, for how long a place is kept; FROM, the fence of the shared hold that
# is to become one alone.  Times are in seconds; "-" is no value; GRANTED and
# ANSWER are t, f, or an SQLSTATE.  Who uses one owner's name in several
# sessions always asks in one mode, and keeps no place.  A call for several
# tokens writes a request for each, all at one time.
#
# The promises:
#   overlap   a token's holders have accepted each other: there are not more
#             than the capacity of each, and shared ones are among themselves.
#             A grant certainly exists from its answer until a put is sent, and
#             a lease at least until its ttl, counted from before the call, is
#             over.  Grants are given in the order of their fences: so if one
#             exists, all with smaller fences have been given
#   fence     a grant that was asked for after another was answered has a
#             larger fence, and no two grants of a name have the same
#   order     who asked after another was in line is not granted before it.
#             (Not looked at: the waiter whose owner's other session got the
#             token meanwhile.  It is told so, and if the token was put again
#             before it could be, then it asks anew.)
#   upgrade   who is in line to have alone what it holds shared goes before all
#   guard     a guarded transaction commits only while its grant exists, and
#             sees the work of all earlier ones that exclude it
#   early     what certainly exists is not answered to be gone
#   error     who got an error for a request does not hold the token

package TokenCheck;

use strict;
use warnings FATAL => 'all';

# The clocks of client and server are the same here, so no 0.1 % is taken off.
my $inf = 9**9**9;

# Checks the logs in these files.
sub new
{
	my ($class, @files) = @_;
	my $self = bless {
		client_of => {},      # pid -> [time, client] ..
		stopped => {},        # client -> time from which on it may have ended
		call => {},           # client, req -> call
		calls => [],
		stops => [],
		seen => [],
		work => {},           # name -> guarded transactions
		grant => {},          # name, fence -> grant
		violations => [],
		pairs => {},          # "kind that held > kind that waited" -> count
		count => {
			map { $_ => 0 }
			  qw(lines grants ask granted waited queued busy failed lapsed put
			  break renew seen stop commit lost work upgraded)
		}
	}, $class;

	for my $file (@files)
	{
		open my $fh, '<', $file or die "could not open $file: $!\n";
		while (my $line = <$fh>)
		{
			# A client that was killed may leave half a line.
			last if $line !~ s/\n\z//;
			$self->read_line(split /\t/, $line, -1);
		}
		close $fh;
	}
	$self->judge;
	return $self;
}

sub violations { return @{ $_[0]{violations} }; }
sub count { return $_[0]{count}; }
sub pairs { return $_[0]{pairs}; }

sub violation
{
	my ($self, $kind, @text) = @_;
	push @{ $self->{violations} }, "$kind: " . join '', @text;
	return;
}

sub judge
{
	my ($self) = @_;

	$self->{calls} = [ sort { $a->{sent} <=> $b->{sent} } @{ $self->{calls} } ];
	for my $s (@{ $self->{stops} })
	{
		my ($t, $whom) = @$s;
		my $client = $whom =~ /^\d+$/ ? $self->client_at($whom, $t) : $whom;
		# A session that is just being opened has told nobody its pid yet.
		$self->stop_at($client, $t) if defined $client;
	}
	$self->collect_grants;
	for my $name (sort keys %{ $self->{grant} })
	{
		$self->check_holders($name);
		$self->check_fences($name);
	}
	$self->check_work($_) for sort keys %{ $self->{work} };
	$self->find_seen;
	$self->find_places;
	$self->check_order;
	return;
}

#
# Reading
#
my %answer_of = map { $_ => 1 } qw(ans putans breans renans comans);

sub read_line
{
	my ($self, $t, $client, $event, @f) = @_;
	my $count = $self->{count};

	$count->{lines}++;
	if ($answer_of{$event})
	{
		my $c = $self->{call}{$client}{ $f[0] }
		  or die "$client: answer $f[0] without a call\n";
		$c->{recv} = $t;
		$c->{answer} = $f[1];
		@{$c}{qw(fence how)} = @f[ 2, 3 ] if $event eq 'ans';
	}
	elsif ($event =~ /^(ask|put|break|renew|commit)$/)
	{
		my %c = (
			type => $event,
			client => $client,
			req => $f[0],
			name => $f[1],
			sent => $t);
		@c{qw(owner ttl scope mode keep from)} = @f[ 2 .. 7 ] if $event eq 'ask';
		$c{fence} = $f[2] if $event ne 'ask';
		$c{ttl} = $f[3] if $event eq 'renew';
		defined $c{$_} && $c{$_} eq '-' && delete $c{$_} for qw(ttl keep from);
		$c{mode} //= 'x';
		$self->{call}{$client}{ $f[0] } = \%c;
		push @{ $self->{calls} }, \%c;
		$count->{$event}++;
	}
	elsif ($event eq 'open')
	{
		push @{ $self->{client_of}{ $f[0] } }, [ $t, $client ];
	}
	elsif ($event eq 'probe')
	{
		$self->violation('error',
			"$client holds $f[0] (fence $f[1]) after an error at $t")
		  if $f[1] ne '-';
	}
	elsif ($event eq 'end')
	{
		$self->stop_at($client, $t);
	}
	elsif ($event eq 'stop')
	{
		push @{ $self->{stops} }, [ $t, $f[0] ];
		$count->{stop}++;
	}
	elsif ($event eq 'seen')
	{
		push @{ $self->{seen} },
		  { recv => $t, sent => $f[0], name => $f[1], pid => $f[2] };
		$count->{seen}++;
	}
	elsif ($event eq 'work')
	{
		my %w;
		@w{qw(name fence mode xid snapshot)} = @f;
		push @{ $self->{work}{ $f[0] } }, \%w;
		$count->{work}++;
	}
	else
	{
		die "unknown event \"$event\"\n";
	}
	return;
}

sub stop_at
{
	my ($self, $client, $t) = @_;
	my $stopped = $self->{stopped};
	$stopped->{$client} = $t
	  if !defined $stopped->{$client} || $t < $stopped->{$client};
	return;
}

# The session that had a pid at a time: the last one opened before it.
sub client_at
{
	my ($self, $pid, $t) = @_;
	my $found;
	for my $o (sort { $a->[0] <=> $b->[0] } @{ $self->{client_of}{$pid} || [] })
	{
		$found = $o->[1] if $o->[0] <= $t;
	}
	return $found;
}

#
# Grants, by name and fence
#
sub collect_grants
{
	my ($self) = @_;
	my ($grant, $count) = @{$self}{qw(grant count)};

	for my $c (grep { $_->{type} eq 'ask' } @{ $self->{calls} })
	{
		my $a = $c->{answer} // 'none';
		if ($a eq 't')
		{
			$count->{granted}++;
			if ($c->{fence} !~ /^\d+$/)
			{
				$self->violation('fence',
					"$c->{client} was granted $c->{name} without one");
				next;
			}
			my $g = $grant->{ $c->{name} }{ $c->{fence} } ||= {
				name => $c->{name},
				fence => $c->{fence},
				mode => $c->{mode},
				first => $c,
				calls => [] };
			push @{ $g->{calls} }, $c;
			if ($c->{how} eq 'new')
			{
				$self->violation('fence',
					"$c->{name}: fence $c->{fence} was given twice, to "
					  . "$g->{new}{client} and to $c->{client}")
				  if $g->{new};
				$g->{new} = $c;
				$g->{mode} = $c->{mode};
			}
		}
		elsif ($a eq 'f')
		{
			$count->{busy}++;
		}
		else
		{
			$count->{failed}++;
		}
	}
	$count->{grants} += keys %$_ for values %$grant;

	for my $c (@{ $self->{calls} })
	{
		if ($c->{type} ne 'ask')
		{
			my $g = $grant->{ $c->{name} }{ $c->{fence} };
			push @{ $g->{calls} }, $c if $g;
		}
		elsif (defined $c->{from})
		{
			# The shared hold ends, unless the answer says that it was kept.
			my $g = $grant->{ $c->{name} }{ $c->{from} };
			my $a = $c->{answer} // 'none';
			push @{ $g->{calls} }, { type => 'upgrade', sent => $c->{sent} }
			  if $g && $a ne 'f';
			$c->{shared} = $g;
			$count->{upgraded}++ if $a eq 't';
		}
	}
	return;
}

# From when to when a grant certainly existed, but for its upgrade; and with
# that.  "pinned" is a time at which it did although it may have been put,
# because it let a transaction commit.
sub find_interval
{
	my ($self, $g) = @_;
	my ($start, $end, $put, $pinned, $upgrade) = ($inf, undef, $inf, 0, $inf);
	my $ttl;

	for my $c (sort { $a->{sent} <=> $b->{sent} } @{ $g->{calls} })
	{
		my $a = $c->{answer} // 'none';
		if ($c->{type} eq 'ask')
		{
			$start = $c->{recv} if $c->{recv} < $start;

			# A session's grant ends with its session at the latest.
			if ($c->{owner} eq '-')
			{
				my $s = $self->{stopped}{ $c->{client} };
				$put = $s if defined $s && $s < $put;
			}
			$ttl = $c->{ttl} if defined $c->{ttl};
			$end = $c->{sent} + $ttl if defined $ttl;
			$end //= $inf;
		}
		elsif ($c->{type} eq 'renew')
		{
			if ($a eq 't')
			{
				$end = $c->{sent} + $c->{ttl} if defined $c->{ttl};
			}
			elsif ($a eq 'f')
			{
				$self->early($g, $c, $start, $end, $put);
			}
			elsif (defined $c->{ttl} && $c->{sent} + $c->{ttl} < $end)
			{
				# Who knows?  It may have been shortened.
				$end = $c->{sent} + $c->{ttl};
			}
			$ttl = $c->{ttl} if defined $c->{ttl};
		}
		elsif ($c->{type} eq 'commit')
		{
			$pinned = $c->{sent} if $a eq 't' && $c->{sent} > $pinned;
			if ($a eq '40001')
			{
				$self->{count}{lost}++;
				$self->early($g, $c, $start, $end, $put);
			}
		}
		elsif ($c->{type} eq 'upgrade')
		{
			$upgrade = $c->{sent};
		}
		else
		{
			if ($a eq 'f')
			{
				$self->early($g, $c, $start, $end, $put);
			}
			elsif ($a eq 't')
			{
				# It still existed, even if its ttl might have been over.
				$end = $c->{sent} if $c->{sent} > $end;
			}
			$put = $c->{sent} if $c->{sent} < $put;
		}
	}
	$end = $put if $put < $end;
	$g->{held_until} = $end;
	$end = $upgrade if $upgrade < $end;
	@{$g}{qw(start end pinned)} = ($start, $end, $pinned);
	return;
}

# A call was answered that the grant is gone: was that possible?
sub early
{
	my ($self, $g, $c, $start, $end, $put) = @_;
	my $limit = $put < $end ? $put : $end;

	# Another session of the same owner, or a break, may have ended it.
	for my $other (grep { $_->{type} =~ /^(put|break|upgrade)$/ } @{ $g->{calls} })
	{
		$limit = $other->{sent} if $other != $c && $other->{sent} < $limit;
	}

	if ($c->{recv} < $limit && $c->{sent} > $start)
	{
		$self->violation('early',
			sprintf '%s (fence %s): %s at %.6f said %s, exists until %s',
			@{$g}{qw(name fence)}, @{$c}{qw(type recv answer)},
			$limit == $inf ? 'its put' : sprintf '%.6f', $limit);
	}
	$self->{count}{lapsed}++;
	return;
}

#
# Who holds together, and may they?
#
sub check_holders
{
	my ($self, $name) = @_;
	my $grants = $self->{grant}{$name};
	my @g = map { $grants->{$_} } sort { $a <=> $b } keys %$grants;
	my @rest;      # the earliest start from each on
	my $min = $inf;
	my @active;    # with smaller fences, and of interest for a later one

	$self->find_interval($_) for @g;
	for my $i (reverse 0 .. $#g)
	{
		$min = $g[$i]{start} if $g[$i]{start} < $min;
		$rest[$i] = $min;
	}
	for my $i (0 .. $#g)
	{
		my $g = $g[$i];
		@active = grep { $_->{end} > $rest[$i] || $_->{pinned} > $rest[$i] } @active;
		if ($g->{end} > $g->{start})
		{
			$self->check_together($g, grep { $_->{end} > $g->{start} } @active);
			for my $h (@active)
			{
				next if $h->{end} > $g->{start} || $h->{pinned} <= $g->{start};
				next if !excludes($h->{mode}, $g->{mode});
				$self->violation('guard',
					sprintf '%s: fence %s of %s exists from %.6f, and a '
					  . 'transaction guarded by fence %s of %s commits at %.6f',
					$name, describe($g), $g->{start}, describe($h), $h->{pinned});
			}
		}
		push @active, $g;
	}
	return;
}

# Those of the others were given before, and are there when it is.
sub check_together
{
	my ($self, $g, @others) = @_;
	my $held = @others + 1;

	for my $h (@others)
	{
		my $room = $g->{mode} eq 's' || $h->{mode} eq 's'
		  ? $g->{mode} eq $h->{mode}
		  : $held <= capacity($g->{mode}) && $held <= capacity($h->{mode});
		next if $room;
		$self->violation('overlap',
			sprintf '%s: fence %s of %s (%s) exists until %.6f, '
			  . 'fence %s of %s (%s) from %.6f, %d hold it',
			$g->{name}, describe($h), $h->{mode}, $h->{end}, describe($g),
			$g->{mode}, $g->{start}, $held);
		return;
	}
	return;
}

sub describe { my ($g) = @_; return ($g->{fence}, $g->{first}{client}); }
sub capacity { my ($mode) = @_; return $mode eq 'x' ? 1 : $mode; }

# Two that can never hold a token together.
sub excludes
{
	my ($m, $n) = @_;
	return $m eq 'x' || $n eq 'x' || ($m eq 's') != ($n eq 's');
}

# Fences grow: sweep over the answers as they came.
sub check_fences
{
	my ($self, $name) = @_;
	my @new = grep { defined } map { $_->{new} } values %{ $self->{grant}{$name} };
	my @by_recv = sort { $a->{recv} <=> $b->{recv} } @new;
	my $max;

	for my $c (sort { $a->{sent} <=> $b->{sent} } @new)
	{
		while (@by_recv && $by_recv[0]{recv} < $c->{sent})
		{
			my $earlier = shift @by_recv;
			$max = $earlier if !$max || $earlier->{fence} > $max->{fence};
		}
		$self->violation('fence',
			"$name: $c->{client} was given $c->{fence} after "
			  . "$max->{client} had $max->{fence}")
		  if $max && $c->{fence} <= $max->{fence};
	}
	return;
}

#
# Guarded transactions: when a grant is given, all that those before it have
# let commit, and ever will, can be seen.
#
sub check_work
{
	my ($self, $name) = @_;
	my @before;

	for my $w (sort { $a->{fence} <=> $b->{fence} } @{ $self->{work}{$name} })
	{
		my ($xmin, $xmax, $list) = split /:/, $w->{snapshot};
		my %running = map { $_ => 1 } split /,/, $list // '';
		for my $b (@before)
		{
			next if $b->{fence} == $w->{fence};
			next if !excludes($b->{mode}, $w->{mode});
			next if $b->{xid} < $xmax && !$running{ $b->{xid} };
			$self->violation('guard',
				"$name: transaction $w->{xid} with fence $w->{fence} does not "
				  . "see $b->{xid} with fence $b->{fence}");
		}
		push @before, $w;
	}
	return;
}

#
# Waiting: seen_from and seen_until are when a request, or an owner's place, was
# certainly in line.
#

# Which request was it that was seen?  One that was under way during the whole
# sample.
sub find_seen
{
	my ($self) = @_;
	my (%asks_of, %grants_of);

	for my $c (grep { $_->{type} eq 'ask' } @{ $self->{calls} })
	{
		push @{ $asks_of{ $c->{client} } }, $c;
		push @{ $grants_of{ $c->{name} }{ $c->{owner} } }, $c
		  if ($c->{how} // '') eq 'new';
	}
	for my $s (sort { $a->{recv} <=> $b->{recv} } @{ $self->{seen} })
	{
		my $client = $self->client_at($s->{pid}, $s->{sent});
		next if !defined $client;
		my $asks = $asks_of{$client} or next;

		# The last request sent before the sample, by bisection.
		my ($lo, $hi) = (0, scalar @$asks);
		while ($lo < $hi)
		{
			my $mid = int(($lo + $hi) / 2);
			if   ($asks->[$mid]{sent} < $s->{sent}) { $lo = $mid + 1; }
			else                                    { $hi = $mid; }
		}
		next if $lo == 0;
		my $c = $asks->[ $lo - 1 ];
		next if $c->{name} ne $s->{name};
		# Without an answer nobody knows how long it was under way.
		next if !defined $c->{recv} || $c->{recv} < $s->{recv};
		# A call for several tokens gives back what it has, and begins anew,
		# when one is broken: nobody knows when it joined this line.
		next if $lo > 1 && $asks->[ $lo - 2 ]{sent} == $c->{sent};
		$c->{seen_from} //= $s->{recv};
		$c->{seen_until} = $s->{sent};
	}
	$self->{grants_of} = \%grants_of;
	return;
}

# Did the owner of a waiting request get the token by another session?
sub served_elsewhere
{
	my ($self, $c) = @_;
	return 0 if $c->{owner} eq '-';
	for my $new (@{ $self->{grants_of}{ $c->{name} }{ $c->{owner} } || [] })
	{
		return 1
		  if $new != $c && $new->{recv} > $c->{sent} && $new->{sent} < $c->{recv};
	}
	return 0;
}

# Places: the stays that are certain; and for each request since when, at the
# earliest, its owner can have been in line.
sub find_places
{
	my ($self) = @_;
	my %asks_of;

	push @{ $asks_of{ $_->{name} }{ $_->{owner} } }, $_
	  for grep { $_->{type} eq 'ask' } @{ $self->{calls} };
	for my $name (keys %asks_of)
	{
		for my $owner (grep { $_ ne '-' } keys %{ $asks_of{$name} })
		{
			$self->find_stays(@{ $asks_of{$name}{$owner} });
		}
	}
	return;
}

sub find_stays
{
	my ($self, @asks) = @_;
	my ($stay, $since, $lapse);

	for my $c (@asks)
	{
		my $a = $c->{answer} // 'none';
		my $queued = $a eq 'f' && $c->{how} eq 'queued' && defined $c->{keep};
		my $sure = $stay && defined $c->{recv} && $c->{recv} < $stay->{seen_until};

		# since when at the earliest
		$since = $c->{sent} if !defined $since || $c->{sent} > $lapse;
		$c->{arrived} = $since;
		if ($a eq 't')
		{
			$since = undef;
		}
		elsif (defined $c->{keep})
		{
			$lapse = ($c->{recv} // $inf) + $c->{keep};
		}
		elsif ($since == $c->{sent})
		{
			$since = undef;    # it has no place
		}

		# what is certain
		if ($sure && $queued)
		{
			my $until = $c->{sent} + $c->{keep};
			$stay->{seen_until} = $until > $c->{recv} ? $until : $c->{recv};
			next;
		}
		if ($stay)
		{
			$stay->{seen_until} = $c->{sent} if $c->{sent} < $stay->{seen_until};
			@{$stay}{qw(answer fence)} = @{$c}{qw(answer fence)}
			  if $sure && $a eq 't' && $c->{how} eq 'new';
			push @{ $self->{stays} }, $stay;
			$stay = undef;
		}
		if ($queued)
		{
			my $until = $c->{sent} + $c->{keep};
			$stay = {
				%$c,
				answer => 'f',
				seen_from => $c->{recv},
				seen_until => $until > $c->{recv} ? $until : $c->{recv} };
			$self->{count}{queued}++;
		}
	}
	push @{ $self->{stays} }, $stay if $stay;
	return;
}

#
# Order
#
sub check_order
{
	my ($self) = @_;
	my %waits;

	for my $c (grep { defined $_->{seen_from} } @{ $self->{calls} })
	{
		next if $self->served_elsewhere($c);
		push @{ $waits{ $c->{name} } }, $c;
		$self->{count}{waited}++;
	}
	push @{ $waits{ $_->{name} } }, $_ for @{ $self->{stays} || [] };
	for my $name (sort keys %waits)
	{
		my @w = sort { $a->{seen_from} <=> $b->{seen_from} } @{ $waits{$name} };
		my @new = grep { defined }
		  map { $_->{new} } values %{ $self->{grant}{$name} || {} };

		$self->count_pairs($name, @w);
		$self->check_line($name, \@w, \@new);
		$self->check_upgrades($name, \@w, \@new);
	}
	return;
}

sub check_line
{
	my ($self, $name, $waits, $new) = @_;
	my @w = @$waits;
	my ($by_fence, $by_time);

	for my $r (sort { arrived($a) <=> arrived($b) }
		grep { !defined $_->{from} } @$new)
	{
		my $arrived = arrived($r);
		while (@w && $w[0]{seen_from} < $arrived)
		{
			my $c = shift @w;
			$by_fence = $c
			  if $c->{answer} eq 't'
			  && (!$by_fence || $c->{fence} > $by_fence->{fence});
			$by_time = $c
			  if !$by_time || $c->{seen_until} > $by_time->{seen_until};
		}
		$self->violation('order',
			"$name: $r->{client} asked at $arrived and was granted fence "
			  . "$r->{fence}, before $by_fence->{client} (fence "
			  . "$by_fence->{fence}), seen in line since $by_fence->{seen_from}")
		  if $by_fence && $by_fence->{fence} > $r->{fence};
		$self->violation('order',
			"$name: $r->{client} asked at $arrived and was granted fence "
			  . "$r->{fence} at $r->{recv}, while $by_time->{client} was seen "
			  . "in line from $by_time->{seen_from} to $by_time->{seen_until}")
		  if $by_time && $by_time->{seen_until} > $r->{recv};
	}
	return;
}

sub arrived { my ($c) = @_; return $c->{arrived} // $c->{sent}; }

# Whoever was still in line after an upgrade was comes after it.  It is an
# upgrade only if it still had its shared hold then.
sub check_upgrades
{
	my ($self, $name, $waits, $new) = @_;
	my @up = grep {
		$_->{shared} && $_->{answer} eq 't'
		  && $_->{shared}{held_until} > $_->{seen_from}
	} @$waits;

	for my $r (grep { !defined $_->{from} && defined $_->{seen_until} } @$new)
	{
		for my $c (@up)
		{
			next if $r->{fence} > $c->{fence} || $r->{seen_until} <= $c->{seen_from};
			$self->violation('upgrade',
				"$name: $r->{client} was in line until $r->{seen_until} and was "
				  . "granted fence $r->{fence}, before $c->{client} (fence "
				  . "$c->{fence}), which held it shared and was in line since "
				  . "$c->{seen_from}");
		}
	}
	return;
}

#
# What has happened, so that a run can tell whether it proves anything: which
# kinds of requests waited for which kinds of holders.
#
sub kind
{
	my ($c) = @_;
	return 'upgrade' if defined $c->{from};
	return 'place' if defined $c->{keep};
	return 'shared' if $c->{mode} eq 's';
	return 'permit' if $c->{mode} ne 'x';
	return 'lease' if $c->{owner} ne '-';
	return 'transaction' if $c->{scope} eq 'transaction';
	return defined $c->{ttl} ? 'timed' : 'session';
}

# How it holds what it got: in no place any more, nor by what it had before.
sub held_kind
{
	my ($g) = @_;
	return kind({ %{ $g->{new} // $g->{first} }, keep => undef, from => undef });
}

sub count_pairs
{
	my ($self, $name, @waits) = @_;
	my @g = sort { $a->{start} <=> $b->{start} } values %{ $self->{grant}{$name} };
	my @active;

	for my $c (@waits)
	{
		push @active, shift @g while @g && $g[0]{start} <= $c->{seen_from};
		@active = grep { $_->{end} > $c->{seen_from} } @active;
		my %kinds = map { held_kind($_) => 1 } @active;
		$self->{pairs}{ "$_ > " . kind($c) }++ for keys %kinds;
	}
	return;
}

1;
