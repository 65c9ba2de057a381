# A small client that speaks PostgreSQL's protocol (version 3, simple query)
# over a unix socket with trust authentication.
#
# Made for tests that need many sessions under close control: calls that are
# under way in several sessions at once, cancel requests, connections that
# break without a word, clients that stand still.  Starting one costs a few
# milliseconds and no process.
#
# Values are text, NULL is undef.  A call that fails dies with a PgClient::Error
# unless it is asked for its result.

package PgClient;

use strict;
use warnings FATAL => 'all';

use Carp;
use Errno;
use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

our $TIMEOUT = 180;

# PgClient->new(host => DIR, port => N, dbname => .., user => .., app => ..)
sub new
{
	my ($class, %opt) = @_;
	my $self = bless {
		host => $opt{host},
		port => $opt{port},
		buf => '',
		notices => [],
		busy => 0,
		lost => 0
	}, $class;
	my $sock = $self->_open;

	$self->{sock} = $sock;
	my %param = (
		user => $opt{user} // $ENV{PGUSER} // scalar(getpwuid $>),
		database => $opt{dbname} || 'postgres',
		application_name => $opt{app} || 'PgClient',
		client_encoding => 'UTF8');
	my $body = pack('N', 196608)
	  . join('', map { "$_\0$param{$_}\0" } sort keys %param) . "\0";
	$self->_write(pack('N', length($body) + 4) . $body);

	$self->{busy} = 1;
	$self->{result} = _empty_result();
	my $res = $self->result;
	die $res->{error} if $res->{error};
	return $self;
}

sub _open
{
	my ($self) = @_;
	my $path = "$self->{host}/.s.PGSQL.$self->{port}";

	# The accept queue may be full for a moment.
	for (1 .. 100)
	{
		my $sock = IO::Socket::UNIX->new(Peer => $path);
		return $sock if $sock;
		last unless $!{EAGAIN} || $!{EINTR};
		select(undef, undef, undef, 0.02);
	}
	die PgClient::Error->new({ C => '08001', M => "could not connect to $path: $!" });
}

sub _empty_result
{
	return {
		rows => [],
		columns => [],
		tag => undef,
		error => undef,
		notices => [],
		at => undef
	};
}

# Numbers of the server process, for pg_locks and pg_stat_activity.
sub pid { return $_[0]{pid}; }

# All notices and warnings received so far, as "SEVERITY: message".
sub notices { return @{ $_[0]{notices} }; }
sub clear_notices { $_[0]{notices} = []; return; }

# Is the connection gone?
sub lost { return $_[0]{lost}; }

# Sends a query and returns; result() or done() have the answer.
sub send
{
	my ($self, $sql) = @_;
	croak "session is busy with: $self->{sql}" if $self->{busy};

	$self->{sql} = $sql;
	$self->{busy} = 1;
	$self->{sent_at} = time;
	$self->{result} = _empty_result();
	if (!$self->{lost})
	{
		utf8::encode($sql) if utf8::is_utf8($sql);
		$self->_write('Q' . pack('N', length($sql) + 5) . $sql . "\0");
	}
	return $self;
}

# Has the call that was sent returned?  Waits so many seconds at most.
sub done
{
	my ($self, $wait) = @_;
	my $until = time + ($wait || 0);

	while ($self->{busy})
	{
		last if $self->{lost};
		my $left = $until - time;
		my $left_pos = $left > 0 ? $left : 0;
		if (IO::Select->new($self->{sock})->can_read($left_pos))
		{
			$self->_read;
			next;
		}
		last if $left <= 0;
	}
	return !$self->{busy} || $self->{lost};
}

# Waits for the end of the call, and returns
#   { rows, columns, tag, error, notices, at, took }
# where error is a PgClient::Error or undef.  A broken connection is an error
# of class 08, unless the server said a reason.
sub result
{
	my ($self, $timeout) = @_;

	$self->done($timeout // $TIMEOUT)
	  or croak "no answer in time: " . ($self->{sql} // 'connect');
	my $res = $self->{result};
	if ($self->{lost} && $self->{busy})
	{
		$res->{error} //= PgClient::Error->new(
			{ C => '08006', M => 'connection lost' });
	}
	$self->{busy} = 0;
	$res->{at} //= time;
	$res->{took} = $res->{at} - $self->{sent_at} if $self->{sent_at};
	return $res;
}

# Runs a query, dies on an error.
sub query
{
	my ($self, $sql) = @_;
	my $res = $self->send($sql)->result;
	croak "$res->{error} in: $sql" if $res->{error};
	return $res;
}

# The rows of a query as array references; its first row; its first value.
sub rows { my ($self, $sql) = @_; return @{ $self->query($sql)->{rows} }; }
sub row { my ($self, $sql) = @_; return @{ $self->query($sql)->{rows}[0] // [] }; }
sub one { my ($self, $sql) = @_; return $self->query($sql)->{rows}[0][0]; }

# The answer of the call that was sent; dies on an error.
sub answer
{
	my ($self, $timeout) = @_;
	my $res = $self->result($timeout);
	croak "$res->{error} in: $self->{sql}" if $res->{error};
	return $res->{rows}[0][0];
}

# Runs a query that is to fail, and returns its error, or undef.
sub fails
{
	my ($self, $sql) = @_;
	return $self->send($sql)->result->{error};
}

# Asks the server to cancel what this session does.
sub cancel
{
	my ($self) = @_;
	my $sock = $self->_open;
	syswrite $sock, pack('NNNN', 16, 80877102, $self->{pid}, $self->{key});
	# The server closes the connection when it has sent the signal.
	sysread $sock, my $nothing, 1;
	close $sock;
	return;
}

# Ends the session in order.
sub quit
{
	my ($self) = @_;
	return if !$self->{sock};
	$self->_write('X' . pack('N', 4)) unless $self->{lost};
	$self->drop;
	return;
}

# Closes the connection without a word, as when the client was killed.
sub drop
{
	my ($self) = @_;
	close $self->{sock} if $self->{sock};
	$self->{sock} = undef;
	$self->{lost} = 1;
	return;
}

sub _write
{
	my ($self, $data) = @_;
	local $SIG{PIPE} = 'IGNORE';

	while (length $data)
	{
		my $n = syswrite $self->{sock}, $data;
		if (!defined $n)
		{
			next if $!{EINTR};
			# Read on: the server may have said why it hung up.
			return;
		}
		substr($data, 0, $n) = '';
	}
	return;
}

# Reads what is there and works through the complete messages.
sub _read
{
	my ($self) = @_;
	my $n = sysread $self->{sock}, $self->{buf}, 65536, length $self->{buf};

	if (!defined $n && $!{EINTR})
	{
		return;
	}
	if (!$n)
	{
		$self->{lost} = 1;
		return;
	}
	while (length $self->{buf} >= 5)
	{
		my ($type, $len) = unpack 'a N', $self->{buf};
		last if length $self->{buf} < $len + 1;
		my $body = substr $self->{buf}, 5, $len - 4;
		substr($self->{buf}, 0, $len + 1) = '';
		$self->_message($type, $body);
	}
	return;
}

sub _message
{
	my ($self, $type, $body) = @_;
	my $res = $self->{result};

	if ($type eq 'Z')
	{
		$res->{at} = time;
		$self->{busy} = 0;
	}
	elsif ($type eq 'T')
	{
		my $n = unpack 'n', $body;
		my $pos = 2;
		$res->{columns} = [];
		$res->{rows} = [];
		for (1 .. $n)
		{
			my $end = index $body, "\0", $pos;
			push @{ $res->{columns} }, substr $body, $pos, $end - $pos;
			$pos = $end + 19;
		}
	}
	elsif ($type eq 'D')
	{
		my $n = unpack 'n', $body;
		my $pos = 2;
		my @row;
		for (1 .. $n)
		{
			my $len = unpack 'l>', substr $body, $pos, 4;
			$pos += 4;
			if ($len < 0)
			{
				push @row, undef;
				next;
			}
			push @row, substr $body, $pos, $len;
			$pos += $len;
		}
		push @{ $res->{rows} }, \@row;
	}
	elsif ($type eq 'C')
	{
		($res->{tag}) = unpack 'Z*', $body;
	}
	elsif ($type eq 'E')
	{
		$res->{error} //= PgClient::Error->new(_fields($body));
	}
	elsif ($type eq 'N')
	{
		my $f = _fields($body);
		my $text = ($f->{V} // $f->{S}) . ": $f->{M}";
		push @{ $res->{notices} }, $text;
		push @{ $self->{notices} }, $text;
	}
	elsif ($type eq 'K')
	{
		($self->{pid}, $self->{key}) = unpack 'NN', $body;
	}
	elsif ($type eq 'R')
	{
		my $method = unpack 'N', $body;
		die PgClient::Error->new({ C => '28000', M => "authentication $method" })
		  if $method != 0;
	}
	return;
}

sub _fields
{
	my ($body) = @_;
	my %f;
	while ($body =~ /\G([A-Za-z])([^\0]*)\0/g)
	{
		$f{$1} = $2;
	}
	return \%f;
}

sub DESTROY
{
	my ($self) = @_;
	local ($@, $!, $?);
	close $self->{sock} if $self->{sock};
	return;
}

package PgClient::Error;

use strict;
use warnings FATAL => 'all';

use overload '""' => \&text, bool => sub { 1 }, fallback => 1;

sub new { my ($class, $fields) = @_; return bless { %{$fields} }, $class; }

# SQLSTATE, message, detail, hint, context; '' where the server sent none.
sub code { return $_[0]{C} // ''; }
sub message { return $_[0]{M} // ''; }
sub detail { return $_[0]{D} // ''; }
sub hint { return $_[0]{H} // ''; }
sub context { return $_[0]{W} // ''; }

sub text
{
	my ($self) = @_;
	return join ' / ', grep { length } $self->code . ' ' . $self->message,
	  $self->detail, $self->hint;
}

1;
