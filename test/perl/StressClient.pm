# A client of a stress run: one process, with one session at a time and a log
# of its own, in the form that TokenCheck.pm reads.  What it does in a round is
# for those to say who inherit from this.

package StressClient;

use strict;
use warnings FATAL => 'all';

use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use TokenlockTest ();

sub now { return clock_gettime(CLOCK_MONOTONIC); }

# Errors that any call may meet: it was cancelled or timed out, its session
# terminated.
my $expected = qr/^(57014|55P03|57P01|08006)$/;

# StressClient->new(id => N, dir => DIR, node => .., names => [..], seed => ..)
sub new
{
	my ($class, %opt) = @_;
	my $self = bless { %opt, req => 0, life => 0 }, $class;
	open $self->{log}, '>', "$opt{dir}/client.$opt{id}" or die $!;
	return $self;
}

# A line is written in one go, so that a killed client leaves whole lines.
sub note_at
{
	my ($self, $at, @fields) = @_;
	my $line = join("\t", sprintf('%.6f', $at), $self->{name}, @fields);
	syswrite $self->{log}, "$line\n";
	return;
}

sub note
{
	my ($self, @fields) = @_;
	return $self->note_at(now(), @fields);
}

# The same, of a call; returns its number.
sub note_call
{
	my ($self, $at, $event, @fields) = @_;
	my $req = ++$self->{req};
	$self->note_at($at, $event, $req, @fields);
	return $req;
}

# A new session.  Its owner name is one life of one process, but for a few that
# share one.
sub connect
{
	my ($self) = @_;
	my $conn;

	# Somebody may have been terminated before it has said a word.
	while (!$conn)
	{
		$conn = eval { TokenlockTest::session($self->{node}, app => 'stress') };
		TokenlockTest::fatal("could not connect: $@")
		  if !$conn && $@ !~ $expected && $@ !~ /^(57P01|08006)/;
	}
	$self->{conn} = $conn;
	$self->{life}++;
	$self->{name} = "c$self->{id}.$self->{life}";
	$self->{shares} = $self->{id} % 9 == 0;
	$self->{owner} = $self->{shares} ? 'shared' : $self->{name};
	$self->{left} = [];
	$self->{left_lease} = {};
	$self->{gone} = 0;
	$self->{tx} = 0;
	$self->note('open', $conn->pid);
	return;
}

# Sends a query and returns (its row, undef) or (undef, SQLSTATE).  "also" has
# more errors that this one may meet.
sub call
{
	my ($self, $sql, $also) = @_;
	my $res = $self->{conn}->send($sql)->result(60);
	if (my $e = $res->{error})
	{
		my $code = $e->code;
		TokenlockTest::fatal("$self->{name}: $e in $sql")
		  if $code !~ $expected && !($also && $code =~ /^($also)$/);
		$self->{gone} = 1 if $self->{conn}->lost;
		$self->{context} = $e->context;
		return (undef, $code);
	}
	return ($res->{rows}[0] // [], undef);
}

# The same, again and again while it is cancelled.
sub insist
{
	my ($self, $sql) = @_;
	while (!$self->{gone})
	{
		my ($row, $error) = $self->call($sql);
		return $row if $row;
	}
	return;
}

sub owner_of
{
	my ($r) = @_;
	return defined $r->{owner} ? "'$r->{owner}'" : 'NULL';
}

sub interval_of
{
	my ($seconds) = @_;
	return defined $seconds ? sprintf("'%d us'", $seconds * 1e6) : 'NULL';
}

# A request: name, owner (of a lease), ttl, wait, scope, mode (x, s, or a number
# of permits), keep, and from, the fence of a shared hold to be had alone.
# Returns (fence, undef), (undef, undef) when refused, or (undef, SQLSTATE); and
# sets "queued" if it has a place then.
sub ask
{
	my ($self, $r) = @_;
	my $mode = $r->{mode} // 'x';
	my $more = $mode eq 's' ? ', shared => true'
	  : $mode ne 'x' ? ", capacity => $mode" : '';
	$more .= ', keep_place => ' . interval_of($r->{keep}) if defined $r->{keep};
	my $sql = "SELECT granted, fence, answer FROM token_request('$r->{name}',
		wait => " . interval_of($r->{wait}) . ', ttl => ' . interval_of($r->{ttl})
	  . ', owner => ' . owner_of($r) . ", scope => '$r->{scope}'$more)";

	my $req = $self->note_call(now(), 'ask', $r->{name},
		map { $_ // '-' } @{$r}{qw(owner ttl scope)}, $mode,
		@{$r}{qw(keep from)});
	my ($row, $error) = $self->call($sql, defined $r->{from} ? '40P01' : undef);
	$self->note('ans', $req, $row ? ($row->[0], $row->[1] // '-', $row->[2])
		: ($error, '-', '-'));
	$r->{queued} = $row && $row->[2] eq 'queued';
	return ($row && $row->[0] eq 't' ? $row->[1] : undef, $error);
}

# An error while the token was held, of a call sent at that time: a transaction
# has failed then, and its token is gone.  Returns true if so.
sub failed
{
	my ($self, $r, $fence, $at) = @_;
	return $self->{gone} if $self->{gone} || !$self->{tx};

	my $own = $r->{scope} eq 'transaction';
	$self->note_call($at, 'put', $r->{name}, $fence) if $own;
	$self->insist('ROLLBACK');
	$self->{tx} = 0;
	return $own || $self->{gone};
}

# Some call while the token is held; true if it is not any more.
sub meanwhile
{
	my ($self, $r, $fence, $sql) = @_;
	my $at = now();
	my ($row, $error) = $self->call($sql);
	return $error && $self->failed($r, $fence, $at);
}

sub renew
{
	my ($self, $r, $fence) = @_;
	my $at = now();

	my $req = $self->note_call($at, 'renew', $r->{name}, $fence, $r->{ttl});
	my ($row, $error) = $self->call("SELECT token_renew('$r->{name}', "
		  . interval_of($r->{ttl}) . ', owner => ' . owner_of($r)
		  . ", fence => $fence)");
	$self->note('renans', $req, $row ? $row->[0] : $error);
	return $error && $self->failed($r, $fence, $at);
}

# Gives back, and insists on it: a put that was cancelled may have been done or
# not, and nothing is to be held unknown to the log.
sub put
{
	my ($self, $r, $fence, $how) = @_;
	my %sql = (
		put => "SELECT token_put('$r->{name}', owner => " . owner_of($r)
		  . ", fence => $fence)",
		all => 'SELECT token_put_all() > 0',
		commit => 'COMMIT',
		rollback => 'ROLLBACK',
		savepoint => 'ROLLBACK TO before',
		discard => 'DISCARD ALL');

	while (1)
	{
		my $at = now();
		my $req = $self->note_call($at, 'put', $r->{name}, $fence);
		# Two of the ways give back what was left to lapse, too.
		if ($how eq 'all' || $how eq 'discard')
		{
			$self->note_call($at, 'put', @$_) for @{ $self->{left} };
		}
		my ($row, $error) = $self->call($sql{$how});
		$self->note('putans', $req, $row ? $row->[0] // '-' : $error);
		return if $self->{gone};
		if (!$error)
		{
			$self->{tx} = 0 if $how =~ /commit|rollback/;
			$self->{left} = [] if $how =~ /all|discard/;
			return;
		}
		return if $self->failed($r, $fence, $at);
	}
}

# After an error of a request: if the error came while it waited, it must not
# hold the token.  A cancel that comes when the call has answered, but its
# statement has not ended, loses the answer: whatever was taken is given back.
sub after_error
{
	my ($self, $r) = @_;
	my $waited = $self->{context} =~ /while waiting for token/;

	$self->insist('ROLLBACK') if $self->{tx};
	$self->{tx} = 0;
	if (!$waited)
	{
		$self->insist("SELECT token_put('$r->{name}', owner => "
			  . owner_of($r) . ')')
		  if ($r->{owner} // '') ne 'shared';
		return;
	}
	# What another session of this owner has proves nothing, nor does what was
	# left to lapse and has not yet.
	return if ($r->{owner} // '') eq 'shared';
	return if grep { $_->[0] eq $r->{name} } @{ $self->{left} };
	return if defined $r->{owner} && $self->{left_lease}{ $r->{name} };
	my $row = $self->insist("SELECT token_fence('$r->{name}', owner => "
		  . owner_of($r) . ')') or return;
	$self->note('probe', $r->{name}, $row->[0] // '-');
	return;
}

# A grant that is left to lapse.
sub leave
{
	my ($self, $r, $fence) = @_;

	push @{ $self->{left} }, [ $r->{name}, $fence ] if !defined $r->{owner};
	$self->{left_lease}{ $r->{name} } = 1 if defined $r->{owner};
	return;
}

sub pause
{
	my ($longest) = @_;
	Time::HiRes::sleep(rand() * $longest);
	return;
}

# How long to wait: not at all, a little, long, for ever.
sub patience
{
	my $dice = rand;
	return $dice < 0.2 ? 0
	  : $dice < 0.4 ? (1 + int(rand(30))) / 1000
	  : $dice < 0.8 ? 20
	  :               undef;
}

# One request and all that follows from it.
sub round
{
	my ($self) = @_;
	$self->attempt;
	$self->insist('COMMIT') if $self->{tx};
	$self->{tx} = 0;
	return;
}

# Runs until there is a file "over".  "begin" returns when it may.
sub run
{
	my ($self, $begin) = @_;
	srand($self->{seed});
	$self->connect;
	$begin->();
	while (1)
	{
		for (1 .. 1 + int(rand(60)))
		{
			last if $self->{gone} || -e "$self->{dir}/over";
			$self->round;
		}
		$self->note('end');
		if (rand() < 0.5) { $self->{conn}->quit; }
		else              { $self->{conn}->drop; }
		last if -e "$self->{dir}/over";
		$self->connect;
	}
	return;
}

1;
