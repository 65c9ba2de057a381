# examples/kannel: messages of a job table through a real gateway, Kannel's
# bearerbox and smsbox, to its fake SMSC, where they are counted while workers
# are killed.  A message that a killed worker had claimed and not sent arrives
# once.  Those that it had sent without telling the database arrive twice: they
# are among the batch that it held, and nothing else arrives twice.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use ClientTest;
use Encode ();
use HTTP::Tiny;
use IO::Socket::INET;
use List::Util qw(sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my ($bearerbox, $smsbox, $fakesmsc) =
  qw(/usr/sbin/bearerbox /usr/sbin/smsbox /usr/lib/kannel/test/fakesmsc);
if (grep { !-x } $bearerbox, $smsbox, $fakesmsc)
{
	my $what = "needs Debian's packages kannel and kannel-extras";
	die $what if $ENV{TOKENLOCK_TEST_CLIENTS};
	plan skip_all => $what;
}
my @python = python() or die 'needs Python';

my $example = examples() . '/kannel';
my $batch = 10;
my ($node) = client_server('gateway');
$node->safe_psql('postgres', 'CREATE DATABASE sms');
$node->safe_psql('sms', slurp_file(examples() . '/sms/sendsms.sql'));
my $watch = session($node, dbname => 'sms');
$ENV{PGDATABASE} = 'sms';
$ENV{KANNEL_PASSWORD} = 'change-me';
$ENV{no_proxy} = '127.0.0.1';

# The example's configuration, but for its ports.
my $folder = PostgreSQL::Test::Utils::tempdir();
my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() }
  my @ports = qw(13000 13001 13013 10000);
my $conf = slurp_file("$example/kannel.conf");
for my $port (@ports)
{
	$conf =~ s/= $port$/= $port{$port}/mg == 1 or die "port $port?";
}
append_to_file("$folder/kannel.conf", $conf);

# bearerbox listens for the SMSC on all addresses, unless it is told better.
my $shim = "$folder/loopback_shim.so";
system_or_bail('cc', '-shared', '-fPIC', '-o', $shim,
	"$FindBin::RealBin/../perl/loopback_shim.c", '-ldl');
mkdir "$folder/spool" or die "could not make $folder/spool: $!";

my (%again, %running, @workers, $smsc);
END { kill KILL => keys %running if %running; }

# A program, running, until it has ended or this test has.
sub run_program
{
	my ($name, @command) = @_;
	my $program = start($name, @command);

	$running{ $program->{pid} } = 1;
	return $program;
}

sub run_box
{
	my ($name, $box) = @_;
	return run_program($name, 'sh', '-c',
		'cd "$0" && LD_PRELOAD=$1 && export LD_PRELOAD && shift && exec "$@"',
		$folder, $shim, $box, '-v', 1, 'kannel.conf');
}

# A worker; or, with "at", a victim that stands still when its third batch is
# "claimed" and nothing of it sent, or its second "sent" and not told.
sub run_worker
{
	my ($sid, $at) = @_;
	my @program = "$example/worker.py";

	@program = ('-c', <<'END', $example, $at) if $at;
import os, signal, sys
sys.path.insert(0, sys.argv.pop(1))
at = sys.argv.pop(1)
import worker

class Victim(worker.Worker):
    batches = 0

    def claim(self):
        self.batches += len(self.sent) == self.options.batch
        if at == "sent" and self.batches == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        messages = super().claim()
        if at == "claimed" and self.batches == 2 and messages:
            os.kill(os.getpid(), signal.SIGSTOP)
        return messages

worker.main(Victim)
END
	# Nobody's lease lapses by itself, however busy this machine is.
	return run_program(
		$sid, @python, @program, '--sid', $sid, '--batch', $batch,
		'--ttl', 120, '--url', "http://127.0.0.1:$port{13013}/cgi-bin/sendsms");
}

sub end_of
{
	my ($program) = @_;
	my $end = ended($program);

	delete $running{ $program->{pid} };
	return $end;
}

sub add_messages
{
	my ($n) = @_;

	# each with a text of its own; the fake SMSC takes no line break
	$watch->query("INSERT INTO sendsms (content, recevies)
		SELECT CASE i % 3
				WHEN 0 THEN 'Message ' || i || CASE i % 10 WHEN 0
					THEN repeat(' and so on', 20) ELSE '' END
				WHEN 1 THEN '第' || i || '条消息'
				ELSE 'Grüße, zum ' || i || '. Mal' END,
			'+447700900' || lpad((i % 1000)::text, 3, '0')
		FROM (SELECT j + (SELECT count(*) FROM sendsms) AS i
			FROM generate_series(1, $n) j) t");
	return;
}

# Waits for something while there is always something to send.
sub until_busy_sending
{
	my ($code) = @_;
	return until_true(
		sub {
			add_messages(50)
			  if $watch->one(q(SELECT count(*) FROM sendsms
				WHERE status = '0')) < 100;
			return $code->();
		});
}

# Has a worker stopped itself?
sub stopped
{
	my ($worker) = @_;
	return slurp_file("/proc/$worker->{pid}/stat") =~ /^\d+ \(.*\) T /;
}

sub in_hands
{
	my ($worker) = @_;
	return map { $_->[0] } $watch->rows("SELECT sendid FROM sendsms
		WHERE status = '2' AND sid = '$worker->{sid}'");
}

# Kills a worker, and returns what it then had: all that may be sent again.
# Others get that at once.
sub killed
{
	my ($worker) = @_;

	kill KILL => $worker->{pid};
	is(end_of($worker), -9, "$worker->{sid} is killed");
	# a call that is under way comes to its end without it
	ok( until_true(
			sub {
				$watch->one("SELECT count(*) = 0 FROM pg_stat_activity
					WHERE application_name = '$worker->{sid}'") eq 't';
			}),
		'its session is gone');
	my @ids = in_hands($worker);
	$watch->query("SELECT renew_jobs('sendsms', '$worker->{sid}',
		ttl => '1 ms')");
	return @ids;
}

# How many the fake SMSC has got; each part of longer ones counts.
sub parts { return scalar(() = printed($smsc, 'err') =~ /Got message/g); }

sub decoded { return $_[0] =~ tr/+/ /r =~ s/%(..)/chr hex $1/ger; }

# What has arrived how many times, as { 'number text' => times }.
sub arrived
{
	my (%times, %parts);
	my $log = printed($smsc, 'err');

	while ($log =~ /Got message \d+: <12345 (\S+) (\S+) (.*)>$/mg)
	{
		my ($number, $type, $text) = ($1, $2, $3);

		if ($type eq 'udh')
		{
			my ($header, $data) = map { decoded($_) } split / data /, $text;
			my (undef, undef, undef, $ref, $of, $part) = unpack 'C6', $header;
			my $found = $parts{"$number $ref"} //= {};

			$found->{$part} = $data;
			next if keys %{$found} < $of;
			$text = join '', map { $found->{$_} } 1 .. $of;
			delete $parts{"$number $ref"};
		}
		elsif ($type eq 'ucs-2')
		{
			$text = decoded($text);
			Encode::from_to($text, 'UTF-16BE', 'UTF-8');
		}
		$times{"$number $text"}++;
	}
	$times{"some parts of $_"} = 1 for keys %parts;
	return \%times;
}

sub status
{
	my $answer = HTTP::Tiny->new(timeout => 30)
	  ->get("http://127.0.0.1:$port{13000}/status.txt?password=change-me");
	return $answer->{success} ? $answer->{content} : '';
}

# One test: waits until all that there is was sent, and all that the gateway
# has, be it by somebody who was killed, is there.
sub all_sent
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		until_true(
			sub {
				$watch->one(q(SELECT count(*) = 0 FROM sendsms
					WHERE status IN ('0', '2'))) eq 't'
				  && status() =~
				  /^SMS: .* sent (\d+) \(0 queued\), store size 0$/m
				  && $1 == sum(values %{ arrived() });
			}),
		'all is sent') || diag(status());
}

# What has not arrived so many times as it should, as text; those that may be
# sent again are given as { id => so many times more }.
sub miscounted
{
	my ($again) = @_;
	my $times = arrived();
	my @wrong;

	for my $row ($watch->rows(q(SELECT sendid, recevies || ' ' || content
		FROM sendsms WHERE status = '1')))
	{
		my ($id, $message) = @{$row};
		my $n = delete $times->{$message} // 0;

		push @wrong, "$id: $n times"
		  if $n < 1 || $n > 1 + ($again->{$id} // 0);
	}
	return join ', ', @wrong, map { "'$_' is none of ours" } keys %{$times};
}

my $box = run_box('bearerbox', $bearerbox);
# The others give up where it does not listen yet.
ok( until_true(
		sub {
			status() =~ /FAKE:\d+ \(connecting/ && IO::Socket::INET->new(
				PeerAddr => '127.0.0.1',
				PeerPort => $port{13001});
		}),
	'bearerbox runs') or diag printed($box, 'err');
$smsc = run_program('smsc', $fakesmsc, '-H', '127.0.0.1', '-r',
	$port{10000}, '-m', 0, '1 2 text nop');
ok(until_true(sub { status() =~ /FAKE:\d+ \(online/ }), 'with an SMSC')
  or diag printed($smsc, 'err');

subtest 'killed between claim and send' => sub {
	add_messages(200);
	$watch->query("INSERT INTO sendsms (content, recevies)
		VALUES ('to nobody', 'nobody')");
	my ($other, $stopped) = map { run_worker($_) } qw(other stopped);
	ok(until_true(sub { printed($other, 'err') =~ /trying again/ }),
		'there is no smsbox');
	is(parts(), 0, 'and nothing arrives');
	run_box('smsbox', $smsbox);

	for my $sid (qw(victim1 victim2))
	{
		my $victim = run_worker($sid, 'claimed');

		ok(until_busy_sending(sub { stopped($victim) }), 'one stands still');
		cmp_ok(scalar(killed($victim)), '>', 0, 'with messages in its hands');
	}

	cmp_ok(
		$watch->one("SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
			FROM pg_stat_activity WHERE application_name = 'other'"),
		'==', 1, 'one loses its connection');
	ok( until_busy_sending(
			sub { printed($other, 'err') =~ /trying again: (?!<urlopen)/ }),
		'and comes to know');

	ok(until_busy_sending(sub { in_hands($stopped) }), 'one is at work');
	kill TERM => $stopped->{pid};
	is(end_of($stopped), 0, 'and ends when it is told to');
	is(scalar(in_hands($stopped)), 0, 'with nothing in its hands');
	like(
		printed($stopped, 'err'),
		qr/stopped: \d+ finished, \d+ given back/,
		'which it says');

	all_sent();
	is(miscounted({}), '', 'each message arrives once');
	is( $watch->one(q(SELECT string_agg(recevies, ' ') FROM sendsms
			WHERE status = '3')),
		'nobody', 'but for one that the gateway refuses');
	push @workers, $other;
};

subtest 'killed at any moment' => sub {
	my $kills = 0;

	push @workers, map { run_worker("one$_") } 1 .. 2;
	while ($kills < 6)
	{
		my $before = parts();

		ok(until_busy_sending(sub { parts() >= $before + 40 }),
			'they are at work');
		my @ids = killed(shift @workers);
		cmp_ok(scalar @ids, '<=', $batch, 'no more than a batch is at risk');
		$again{$_}++ for @ids;
		push @workers, run_worker('another' . ++$kills);
	}
	all_sent();
	is(miscounted(\%again), '',
		'each arrives, and none twice but of a killed one');
	note(scalar(grep { $_ > 1 } values %{ arrived() }), ' arrived twice, ',
		scalar(keys %again), ' might have');
};

# What nobody can help.
subtest 'killed between send and finish' => sub {
	my $victim = run_worker('late', 'sent');

	ok(until_busy_sending(sub { stopped($victim) }), 'one stands still');
	my @ids = killed($victim);
	is(scalar @ids, $batch, 'with a batch that it has sent');
	all_sent();
	is(miscounted({ %again, map { $_ => 1 } @ids }), '', 'others arrive once');
	my $times = arrived();
	is( join(' ', map { $times->{ $_->[0] } } $watch->rows(
				"SELECT recevies || ' ' || content FROM sendsms
				WHERE sendid IN (" . join(', ', @ids) . ')')),
		join(' ', (2) x $batch),
		'and these twice');
};

$node->stop;
done_testing();
