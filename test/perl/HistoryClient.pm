# A client of the history of crashes and failovers: one process, one owner, one
# session at a time, and a log of its own, in the form that HistoryCheck.pm
# reads.  When its session breaks it looks where the primary is, and goes on as
# the same owner: what it holds, it believes to hold on.

package HistoryClient;

use strict;
use warnings FATAL => 'all';

use PgClient;
use StressClient;
use TokenlockTest ();

our @ISA = ('StressClient');

sub now { return StressClient::now(); }

# Errors of a server that is going, gone, or not there yet.
my $down = qr/^(08001|08006|57P01|57P02|57P03)$/;

# HistoryClient->new(id => N, dir => DIR, seed => .., names => [..],
#	short => [..], long => [..])
#
# The file "primary" in that folder has the socket's folder and the port; while
# there is none there is nobody to connect to.
sub new
{
	my ($class, %opt) = @_;
	my $self = $class->SUPER::new(%opt, held => {}, tx => 0);

	$self->{name} = $self->{owner} = "w$opt{id}";
	$self->{own} = "own $opt{id}";
	return $self;
}

# Until there is no file "go_on" any more, or nobody who would remove it.
sub goes_on
{
	my ($self) = @_;
	return -e "$self->{dir}/go_on" && getppid == $self->{parent};
}

sub connect
{
	my ($self) = @_;

	while ($self->goes_on)
	{
		Time::HiRes::sleep(0.01);
		open my $fh, '<', "$self->{dir}/primary" or next;
		my ($host, $port) = split ' ', <$fh>;
		$self->{conn} = eval {
			PgClient->new(host => $host, port => $port, app => 'history');
		};
		return if $self->{conn};
		TokenlockTest::fatal("could not connect: $@")
		  if !ref $@ || $@->code !~ $down;
	}
	return;
}

# Sends a query and returns (its row, undef) or (undef, SQLSTATE).  "also" has
# the errors that this one may meet.
sub call
{
	my ($self, $sql, $also) = @_;
	my $res = $self->{conn}->send($sql)->result;
	my $e = $res->{error} or return ($res->{rows}[0] // [], undef);
	my $code = $e->code;

	TokenlockTest::fatal("$self->{name}: $e in $sql")
	  if $code !~ $down && !($also && $code =~ /^($also)$/);
	$self->{conn} = undef if $code =~ $down;
	return (undef, $code);
}

sub pick { my (@of) = @_; return $of[ rand @of ]; }

# A quarter of the leases are long; and that of a name of its own is longer than
# any crash takes.
sub length_of
{
	my ($self, $name) = @_;
	return 3600 if $name eq $self->{own};
	return pick(@{ $self->{ rand() < 0.25 && !$self->{cut} ? 'long' : 'short' } });
}

# Whoever asks for a shorter end believes in it from then on.
sub shorten
{
	my ($self, $name, $until) = @_;
	my $held = $self->{held}{$name};
	$held->{until} = $until if $held && $until < $held->{until};
	return;
}

# Who has something that others want does not wait for more.
sub holds_one
{
	my ($self) = @_;
	return grep { $self->{held}{$_} } @{ $self->{names} };
}

sub take
{
	my ($self, $name) = @_;
	my %r = (
		name => $name,
		owner => $self->{owner},
		ttl => $self->length_of($name),
		scope => 'session',
		wait => $self->holds_one ? 0 : pick(0, 0.05, 0.5, 2));
	my $sent = now();

	$self->shorten($name, $sent + $r{ttl});
	my ($fence, $error) = $self->ask(\%r);
	return if $error;
	if (!defined $fence)
	{
		delete $self->{held}{$name};
		return;
	}
	$self->{held}{$name} = { fence => $fence, until => $sent + $r{ttl} };
	# The time since it was sent is of no use after a wait.
	$self->renew_it($name, $r{ttl}) if $r{wait};
	return;
}

sub renew_it
{
	my ($self, $name, $ttl) = @_;
	my $held = $self->{held}{$name};
	my $sent = now();

	$self->shorten($name, $sent + $ttl);
	my $req = $self->note_call($sent, 'renew', $name, $held->{fence}, $ttl);
	my ($row, $error) = $self->call("SELECT token_renew('$name', "
		  . StressClient::interval_of($ttl)
		  . ", owner => '$self->{owner}', fence => $held->{fence})");
	$self->note('renans', $req, $error // $row->[0]);
	return if $error;
	$held->{until} = $sent + $ttl if $row->[0] eq 't';
	delete $self->{held}{$name} if $row->[0] eq 'f';
	return;
}

sub put_it
{
	my ($self, $name) = @_;
	my $held = delete $self->{held}{$name};
	my $req = $self->note_call(now(), 'put', $name, $held->{fence});

	my ($row, $error) = $self->call("SELECT token_put('$name',
		owner => '$self->{owner}', fence => $held->{fence})");
	$self->note('putans', $req, $error // $row->[0]);
	return;
}

# A transaction that writes a row with its fence; now and then it is late.
sub guarded
{
	my ($self, $name) = @_;
	my $held = $self->{held}{$name};
	my $fence = $held->{fence};
	my $error;

	return if ($self->call('BEGIN'))[1];
	my $req = $self->note_call(now(), 'guard', $name, $fence);
	(undef, $error) = $self->call("SELECT token_guard('$name',
		owner => '$self->{owner}', fence => $fence)", '55000');
	$self->note('guans', $req, $error // 't');
	if (!$error)
	{
		# the number of the commit's call, which comes next
		$req = $self->{req} + 1;
		(undef, $error) = $self->call("INSERT INTO work SELECT '$name', $fence,
			'$self->{name}', $req, pg_current_xact_id(), pg_current_snapshot()");
		return if $error;
		my $left = $held->{until} - now();
		StressClient::pause(0.01);
		Time::HiRes::sleep($left + 0.05) if $left > 0 && $left < 1 && rand() < 0.1;
		$self->note_call(now(), 'commit', $name, $fence);
		(undef, $error) = $self->call('COMMIT', '40001');
		$self->note('comans', $req, $error // 't');
	}
	return if !$error || !$self->{conn};
	delete $self->{held}{$name};
	$self->call('ROLLBACK') if $error eq '55000';
	return;
}

# While there is a file "cut" nothing is begun that would wait for the standby.
sub round
{
	my ($self) = @_;
	my $cut = $self->{cut} = -e "$self->{dir}/cut";
	my $name = pick(@{ $self->{names} }, $self->holds_one,
		$cut ? () : $self->{own});
	my $dice = rand;

	delete $self->{held}{$name}
	  if $self->{held}{$name} && $self->{held}{$name}{until} <= now();
	if (!$self->{held}{$name} || $dice < 0.1) { $self->take($name); }
	elsif ($dice < 0.25) { $self->renew_it($name, $self->length_of($name)); }
	elsif ($dice < 0.6) { $self->guarded($name) if !$cut; }
	elsif ($dice < 0.8) { $self->put_it($name); }
	StressClient::pause(0.03);
	return;
}

sub run
{
	my ($self) = @_;

	$self->{parent} = getppid;
	srand($self->{seed});
	while ($self->goes_on)
	{
		$self->connect if !$self->{conn};
		last if !$self->{conn};
		$self->round;
		$self->{conn} = undef if rand() < 0.01;
	}
	$self->note('end');
	return;
}

1;
