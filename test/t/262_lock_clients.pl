# The locks of examples/, as real programs with real drivers.  Of each sort
# three want one lock.  The holder stands still past its ttl, has it broken,
# loses its connections, is killed, and is told to stop.  Each time the next in
# line goes on, who was late knows it, and nothing late is committed.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use ClientTest;
use Test::More;
use TokenlockTest;

my $examples = examples();
my ($node, $watch) = client_server('locks');

# The lines that the program has written.
sub lines
{
	my ($program) = @_;
	return $watch->one(
		"SELECT count(*) FROM ledger WHERE owner = '$program->{sid}'");
}

# Waits until it writes; more lines than before.
sub writes
{
	my ($program, $before) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(until_true(sub { lines($program) > ($before // 0) }),
		"$program->{sid} writes");
}

# Waits until it stands in line.
sub queued
{
	my ($program) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(
		until_true(
			sub {
				$watch->one("SELECT count(*) FROM token_waiters
					WHERE owner = '$program->{sid}'");
			}),
		"$program->{sid} stands in line");
}

sub says
{
	my ($program, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(until_true(sub { printed($program, 'err') =~ $what }),
		"$program->{sid} says $what");
}

# The sorts that can run here: how they are called, from name, owner and ttl;
# with which status they end when told to; and their programs.
my @sorts;
for (
	[ 'py', 0, \&python, "$examples/lock.py" ],
	[ 'js', 0, \&node_js, "$examples/lock.js" ],
	[ 'java', 143, \&java, "$examples/Lock.java", '--url', jdbc_url() ],
	[ 'c', 0, sub { built('lock') } ])
{
	my ($name, $exit, $there, @more) = @{$_};

	subtest "$name can run" => sub {
		my @program = $there->() or return;
		my $command = sub {
			my ($name, $owner, $ttl) = @_;
			return (@program, $name, $owner, $ttl) unless @more;
			return (@program, @more, '--name', $name, '--owner', $owner,
				'--ttl', $ttl);
		};

		push @sorts, { name => $name, exit => $exit, command => $command };
		pass($program[0]);
	};
}

$watch->query('CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY,
	fence bigint, owner text)');

# All sorts go side by side, step by step: most of the time they wait.
sub each_sort
{
	my ($code) = @_;
	$code->($_, @{$_}{qw(a b c)}) for @sorts;
	return;
}

for my $who (qw(a b c))
{
	# Only what is to lapse does so, however busy this machine is.
	my $ttl = $who eq 'a' ? 6 : 120;

	each_sort(
		sub {
			my ($sort) = @_;
			my $sid = "$sort->{name}-$who";
			$sort->{$who} =
			  start($sid, $sort->{command}->($sort->{name}, $sid, $ttl));
		});
	each_sort(
		sub {
			my ($sort) = @_;
			$who eq 'a' ? writes($sort->{a}) : queued($sort->{$who});
		});
}
each_sort(
	sub {
		my ($sort, $a) = @_;
		ok( until_true(
				sub {
					$watch->one("SELECT count(*) FROM token_holders
						WHERE owner = '$a->{sid}'
						AND expires_at > acquired_at + '7 s'");
				}),
			"the heartbeat of $a->{sid} renews the lease");
	});

each_sort(sub { kill STOP => $_[1]{pid} });
each_sort(sub { writes($_[2]) });
each_sort(sub { kill CONT => $_[1]{pid} });
each_sort(
	sub {
		my ($sort, $a) = @_;
		says($a, qr/^lost/m);
		queued($a);
	});

each_sort(
	sub {
		my ($sort, $a, $b, $c) = @_;
		my $before = lines($c);

		is($watch->one("SELECT token_break(name, fence) FROM token_holders
			WHERE owner = '$b->{sid}'"), 't', "the lock of $b->{sid} is broken");
		writes($c, $before);
		says($b, qr/^lost/m);
		queued($b);

		$before = lines($c);
		cmp_ok(
			$watch->one("SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
				FROM pg_stat_activity
				WHERE application_name LIKE '$c->{sid}%'"),
			'>=', 1, "$c->{sid} loses its connections");
		says($c, qr/^trying again/m);
		writes($c, $before + 1);
		is($watch->one("SELECT count(DISTINCT fence) FROM ledger
			WHERE owner = '$c->{sid}'"), 1, 'but not the lock');

		$before = lines($a);
		kill TERM => $c->{pid};
		is(ended($c), $sort->{exit}, "$c->{sid} is told to end");
		says($c, qr/^put$/m);
		writes($a, $before);

		kill KILL => $a->{pid};
		is(ended($a), -9, "$a->{sid} is killed");
	});
each_sort(
	sub {
		my ($sort, $a, $b) = @_;

		says($b, qr/taken.*taken/s);
		writes($b, lines($b));
		kill TERM => $b->{pid};
		is(ended($b), $sort->{exit}, "$b->{sid} is told to end");
	});
is($watch->one('SELECT count(*) FROM token_holders'),
	0, 'nobody has a lock now');

my $lines = q{(SELECT id, fence, owner, split_part(owner, '-', 1) AS sort
	FROM ledger)};
is( $watch->one("SELECT count(*) FROM (
		SELECT fence, lag(fence) OVER (PARTITION BY sort ORDER BY id) AS before
		FROM $lines l) l WHERE fence < before"),
	0,
	'nothing was written late');
is( $watch->one("SELECT count(*) FROM (SELECT FROM $lines l
		GROUP BY sort, fence HAVING count(DISTINCT owner) > 1) l"),
	0,
	'a fence had one owner');
is( $watch->one("SELECT string_agg(DISTINCT n::text, ',') FROM (
		SELECT count(DISTINCT fence) AS n FROM $lines l GROUP BY sort) l"),
	@sorts ? 5 : undef,
	'each lock was granted as often as it had to be');

$node->stop;
done_testing();
