#!/usr/bin/perl
#
# Checks the event logs of a stress run against what tokens promise.
#
#     check_log.pl [--summary] LOGFILE...
#
# Prints each violation and exits with 1 if there is one.  It knows nothing of
# the server: it reasons from what clients sent and were answered, and when.
# All times are of one clock, which no step moves, of one machine.
#
# A log line has tab-separated fields: time, client, event, and
#
#     open   PID                           a session of the client begins
#     ask    REQ NAME OWNER TTL SCOPE      a request is about to be sent
#     ans    REQ GRANTED FENCE ANSWER      its answer has come
#     put    REQ NAME FENCE                a put, or the end of the transaction
#     putans REQ ANSWER                      or session, is about to be sent
#     renew  REQ NAME FENCE TTL            a renewal is about to be sent
#     renans REQ ANSWER
#     probe  NAME FENCE                    what a session found it holds, after
#                                            an error of its only request
#     end                                  the client is about to go
#     stop   CLIENT|PID                    somebody is about to end that client
#                                            or that server process
#     seen   SENT NAME PID                 the waiter slept in line, as a sample
#                                            sent at SENT and now answered says
#
# TTL is in seconds; "-" is no value; ANSWER and GRANTED may be an SQLSTATE.
#
# The promises:
#   overlap   a token has one holder at a time.  A grant certainly exists from
#             its answer until a put is sent, and a lease at least until its
#             ttl, counted from before the call, is over.  Such times of two
#             grants of one name never overlap, in the order of their fences
#   fence     a grant that was asked for after another was answered has a
#             larger fence, and no two grants of a name have the same
#   order     who asked after another was seen in line is not granted before it.
#             (Not looked at: the waiter whose owner's other session got the token
#             meanwhile.  It is told so, and if the token was put again before
#             it could be, then it asks anew.)
#   early     what certainly exists is not answered to be gone
#   error     who got an error for a request does not hold the token
use strict;
use warnings FATAL => 'all';

my $summary = 0;
if (@ARGV && $ARGV[0] eq '--summary')
{
	$summary = 1;
	shift @ARGV;
}
die "usage: check_log.pl [--summary] LOGFILE...\n" unless @ARGV;

# The clocks of client and server are the same here, so no 0.1 % is taken off.
my $inf = 9**9**9;

my %pid_of;        # client -> pid
my %client_of;     # pid -> client
my %stopped;       # client -> time from which on it may have been ended
my %call;          # client, req -> call
my @calls;
my @seen;
my @violations;
my %count = map { $_ => 0 }
  qw(ask granted waited busy failed lapsed put renew seen stop);

sub violation
{
	my ($kind, $text) = @_;
	push @violations, "$kind: $text";
	return;
}

sub stop_at
{
	my ($client, $t) = @_;
	$stopped{$client} = $t
	  if !defined $stopped{$client} || $t < $stopped{$client};
	return;
}

#
# Read.  Lines of one client are in order; "stop" and "seen" come from others,
# so that they are looked at when all pids are known.
#
my (@stops, $lines);
for my $file (@ARGV)
{
	open my $fh, '<', $file or die "could not open $file: $!\n";
	while (my $line = <$fh>)
	{
		# A client that was killed may leave half a line.
		last if $line !~ s/\n\z//;
		my ($t, $client, $event, @f) = split /\t/, $line, -1;
		$lines++;
		if ($event eq 'open')
		{
			$pid_of{$client} = $f[0];
			$client_of{ $f[0] } //= [];
			push @{ $client_of{ $f[0] } }, [ $t, $client ];
		}
		elsif ($event eq 'ask' || $event eq 'put' || $event eq 'renew')
		{
			my %c = (
				type => $event,
				client => $client,
				req => $f[0],
				name => $f[1],
				sent => $t,
				answer => undef);
			@c{qw(owner ttl scope)} = @f[ 2 .. 4 ] if $event eq 'ask';
			$c{fence} = $f[2] if $event ne 'ask';
			$c{ttl} = $f[3] if $event eq 'renew';
			delete $c{ttl} if defined $c{ttl} && $c{ttl} eq '-';
			$call{$client}{ $f[0] } = \%c;
			push @calls, \%c;
			$count{$event}++;
		}
		elsif ($event eq 'ans' || $event eq 'putans' || $event eq 'renans')
		{
			my $c = $call{$client}{ $f[0] }
			  or die "$file:$.: answer without a call\n";
			$c->{recv} = $t;
			$c->{answer} = $f[1];
			$c->{fence} = $f[2] if $event eq 'ans';
			$c->{how} = $f[3] if $event eq 'ans';
		}
		elsif ($event eq 'probe')
		{
			violation('error',
				"$client holds $f[0] (fence $f[1]) after an error at $t")
			  if $f[1] ne '-';
		}
		elsif ($event eq 'end')
		{
			stop_at($client, $t);
		}
		elsif ($event eq 'stop')
		{
			push @stops, [ $t, $f[0] ];
			$count{stop}++;
		}
		elsif ($event eq 'seen')
		{
			push @seen,
			  { recv => $t, sent => $f[0], name => $f[1], pid => $f[2] };
			$count{seen}++;
		}
		else
		{
			die "$file:$.: unknown event \"$event\"\n";
		}
	}
	close $fh;
}

# The session that had a pid at a time: the last one opened before it.
sub client_at
{
	my ($pid, $t) = @_;
	my $found;
	for my $o (sort { $a->[0] <=> $b->[0] } @{ $client_of{$pid} || [] })
	{
		$found = $o->[1] if $o->[0] <= $t;
	}
	return $found;
}

for my $s (@stops)
{
	my ($t, $whom) = @$s;
	my $client = $whom =~ /^\d+$/ ? client_at($whom, $t) : $whom;
	# A session that is just being opened has told nobody its pid yet.
	stop_at($client, $t) if defined $client;
}

#
# Grants, by name and fence.
#
my %grant;
@calls = sort { $a->{sent} <=> $b->{sent} } @calls;

for my $c (grep { $_->{type} eq 'ask' } @calls)
{
	my $a = $c->{answer} // 'none';
	if ($a eq 't')
	{
		$count{granted}++;
		my $g = $grant{ $c->{name} }{ $c->{fence} } ||= {
			name => $c->{name},
			fence => $c->{fence},
			calls => [] };
		push @{ $g->{calls} }, $c;
		if ($c->{how} eq 'new')
		{
			violation('fence',
				"$c->{name}: fence $c->{fence} was given twice, to "
				  . "$g->{new}{client} and to $c->{client}")
			  if $g->{new};
			$g->{new} = $c;
		}
		if ($c->{fence} !~ /^\d+$/)
		{
			violation('fence', "$c->{client} was granted $c->{name} without one");
			delete $grant{ $c->{name} }{ $c->{fence} };
		}
	}
	elsif ($a eq 'f')
	{
		$count{busy}++;
	}
	else
	{
		$count{failed}++;
	}
}
for my $c (grep { $_->{type} ne 'ask' } @calls)
{
	my $g = $grant{ $c->{name} }{ $c->{fence} };
	push @{ $g->{calls} }, $c if $g;
}

# From when to when a grant certainly existed.
sub interval
{
	my ($g) = @_;
	my ($start, $end) = ($inf, undef);
	my $put = $inf;

	for my $c (sort { $a->{sent} <=> $b->{sent} } @{ $g->{calls} })
	{
		my $yes = defined $c->{answer} && $c->{answer} eq 't';
		if ($c->{type} eq 'ask')
		{
			$start = $c->{recv} if $c->{recv} < $start;

			# A session's grant ends with its session at the latest.
			if ($c->{owner} eq '-')
			{
				my $s = $stopped{ $c->{client} };
				$put = $s if defined $s && $s < $put;
			}
			$end = $c->{sent} + $c->{ttl} if defined $c->{ttl};
			$end //= $inf;
		}
		elsif ($c->{type} eq 'renew')
		{
			if ($yes)
			{
				$end = $c->{sent} + $c->{ttl} if defined $c->{ttl};
			}
			elsif (defined $c->{answer} && $c->{answer} eq 'f')
			{
				early($g, $c, $start, $end, $put);
			}
			elsif (defined $c->{ttl} && $c->{sent} + $c->{ttl} < $end)
			{
				# Who knows?  It may have been shortened.
				$end = $c->{sent} + $c->{ttl};
			}
		}
		else
		{
			if (defined $c->{answer} && $c->{answer} eq 'f')
			{
				early($g, $c, $start, $end, $put);
			}
			elsif ($yes)
			{
				# It still existed, even if its ttl might have been over.
				$end = $c->{sent} if $c->{sent} > $end;
			}
			$put = $c->{sent} if $c->{sent} < $put;
		}
	}
	$end = $put if $put < $end;
	return ($start, $end);
}

# A put or a renewal was answered "f": was that possible?
sub early
{
	my ($g, $c, $start, $end, $put) = @_;
	my $limit = $put < $end ? $put : $end;

	# Another session of the same owner may have put it meanwhile.
	for my $other (grep { $_->{type} eq 'put' } @{ $g->{calls} })
	{
		$limit = $other->{sent} if $other != $c && $other->{sent} < $limit;
	}

	if ($c->{recv} < $limit && $c->{sent} > $start)
	{
		violation('early',
			sprintf '%s (fence %s): %s at %.6f said f, exists until %s',
			$g->{name}, $g->{fence}, $c->{type}, $c->{recv},
			$limit == $inf ? 'its put' : sprintf '%.6f', $limit);
	}
	$count{lapsed}++;
	return;
}

for my $name (sort keys %grant)
{
	my $before;

	for my $fence (sort { $a <=> $b } keys %{ $grant{$name} })
	{
		my $g = $grant{$name}{$fence};
		@{$g}{qw(start end)} = interval($g);
		next if $g->{end} <= $g->{start};
		if ($before && $g->{start} < $before->{end})
		{
			violation('overlap',
				sprintf '%s: fence %s of %s exists until %.6f, '
				  . 'fence %s of %s from %.6f',
				$name, $before->{fence}, $before->{calls}[0]{client},
				$before->{end}, $fence, $g->{calls}[0]{client}, $g->{start});
		}
		$before = $g if !$before || $g->{end} > $before->{end};
	}

	# Fences grow: sweep over the answers as they came.
	my @new = grep { defined } map { $_->{new} } values %{ $grant{$name} };
	my @by_recv = sort { $a->{recv} <=> $b->{recv} } @new;
	my $max;
	for my $c (sort { $a->{sent} <=> $b->{sent} } @new)
	{
		while (@by_recv && $by_recv[0]{recv} < $c->{sent})
		{
			my $earlier = shift @by_recv;
			$max = $earlier if !$max || $earlier->{fence} > $max->{fence};
		}
		violation('fence',
			"$name: $c->{client} was given $c->{fence} after "
			  . "$max->{client} had $max->{fence}")
		  if $max && $c->{fence} <= $max->{fence};
	}
}

my %grants_of;     # name, owner -> new grants
for my $new (grep { $_->{type} eq 'ask' && ($_->{how} // '') eq 'new' } @calls)
{
	push @{ $grants_of{ $new->{name} }{ $new->{owner} } }, $new;
}

#
# Order: which request was it that was seen?  One that was under way during the
# whole sample.
#
my %asks_of;
for my $c (grep { $_->{type} eq 'ask' } @calls)
{
	push @{ $asks_of{ $c->{client} } }, $c;
}
for my $s (sort { $a->{recv} <=> $b->{recv} } @seen)
{
	my $client = client_at($s->{pid}, $s->{sent});
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
	next if defined $c->{recv} && $c->{recv} < $s->{recv};
	# Without an answer nobody knows how long it was under way.
	next if !defined $c->{recv};
	$c->{seen_from} //= $s->{recv};
	$c->{seen_until} = $s->{sent};
}

# Did the owner of a waiting request get the token by another session?
sub served_elsewhere
{
	my ($c) = @_;
	return 0 if $c->{owner} eq '-';
	for my $new (@{ $grants_of{ $c->{name} }{ $c->{owner} } || [] })
	{
		return 1
		  if $new != $c && $new->{recv} > $c->{sent} && $new->{sent} < $c->{recv};
	}
	return 0;
}

my %waits;
for my $c (grep { defined $_->{seen_from} } @calls)
{
	next if served_elsewhere($c);
	push @{ $waits{ $c->{name} } }, $c;
	$count{waited}++;
}
for my $name (sort keys %waits)
{
	my @w = sort { $a->{seen_from} <=> $b->{seen_from} } @{ $waits{$name} };
	my ($by_fence, $by_time);

	for my $r (sort { $a->{sent} <=> $b->{sent} }
		grep { defined } map { $_->{new} } values %{ $grant{$name} || {} })
	{
		while (@w && $w[0]{seen_from} < $r->{sent})
		{
			my $c = shift @w;
			$by_fence = $c
			  if $c->{answer} eq 't'
			  && (!$by_fence || $c->{fence} > $by_fence->{fence});
			$by_time = $c
			  if !$by_time || $c->{seen_until} > $by_time->{seen_until};
		}
		violation('order',
			"$name: $r->{client} asked at $r->{sent} and was granted fence "
			  . "$r->{fence}, before $by_fence->{client} (fence "
			  . "$by_fence->{fence}), seen in line since $by_fence->{seen_from}")
		  if $by_fence && $by_fence->{fence} > $r->{fence};
		violation('order',
			"$name: $r->{client} asked at $r->{sent} and was granted fence "
			  . "$r->{fence} at $r->{recv}, while $by_time->{client} was seen "
			  . "in line from $by_time->{seen_from} to $by_time->{seen_until}")
		  if $by_time && $by_time->{seen_until} > $r->{recv};
	}
}

print "$_\n" for @violations;
if ($summary)
{
	my $grants = 0;
	$grants += keys %{ $grant{$_} } for keys %grant;
	print join(' ', "lines=" . ($lines // 0), "grants=$grants",
		map { "$_=$count{$_}" } sort keys %count), "\n";
}
exit(@violations ? 1 : 0);
