# Clients take, renew and put leases of all lengths while the server is killed
# again and again, at random.  Each writes down what it may believe: that it
# holds a token from an answer until its ttl is over, counted from before the
# call was sent, by its own clock, or until it asks for something else.  Never
# may two believe it, and fences grow.  The seed is logged; TL_SEED sets it.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use POSIX qw(_exit);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $seed = $ENV{TL_SEED} || time & 0xffff;
my $crashes = full_run() ? 30 : 4;
my @names = qw(a b c);
# The grace is between the two: some of the leases are on disk.
my %ttls = ('1500ms' => 1.5, '4s' => 4);
note("seed $seed, $crashes crashes");
srand($seed);

my $node = new_server('points',
	conf => "fsync = on\ntokenlock.grace = '2s'\nrestart_after_crash = on\n");
my $dir = $node->basedir;
my $go_on = "$dir/go_on";
my $parent = $$;
append_to_file($go_on, '');

# A client: a line for each belief, "name fence from to", and at its end.
sub client
{
	my ($number) = @_;
	my $owner = "w$number";
	my %held;		# name => [ fence, from, to ]
	my $c;

	srand($seed + $number);
	open(my $fh, '>', "$dir/log.$number") or _exit(1);
	my $note = sub {
		my ($name, $until) = @_;
		my $belief = delete $held{$name} or return;
		$until = $belief->[2] if $belief->[2] < $until;
		printf $fh "%s %s %.6f %.6f\n", $name, @$belief[ 0, 1 ], $until
		  if $until > $belief->[1];
	};
	while (-e $go_on && getppid == $parent)
	{
		my $name = $names[ rand @names ];
		my $ttl = (sort keys %ttls)[ rand keys %ttls ];
		my $seconds = $ttls{$ttl};
		my $what = int(rand(6));

		$c //= eval { session($node, app => $owner) };
		if (!$c)
		{
			sleep 0.02;
			next;
		}
		eval {
			my $sent = time;
			if (!$held{$name} || $what < 2)
			{
				# a shorter end is believed from now on, a longer one later
				$held{$name}[2] = $sent + $seconds
				  if $held{$name} && $sent + $seconds < $held{$name}[2];
				my ($granted, $fence) = $c->row("SELECT granted, fence
					FROM token_request('$name', owner => '$owner', ttl => '$ttl')");
				my $now = time;
				if ($granted eq 't')
				{
					$note->($name, $now)
					  if $held{$name} && $held{$name}[0] != $fence;
					$held{$name} //= [ $fence, $now, 0 ];
					$held{$name}[2] = $sent + $seconds;
				}
				else
				{
					# what it believed is over by its clock, or should be
					$note->($name, $now);
				}
			}
			elsif ($what < 4)
			{
				$held{$name}[2] = $sent + $seconds
				  if $sent + $seconds < $held{$name}[2];
				my $ok = $c->one("SELECT token_renew('$name', '$ttl',
					owner => '$owner', fence => $held{$name}[0])");
				if ($ok eq 't') { $held{$name}[2] = $sent + $seconds; }
				else { $note->($name, time); }
			}
			else
			{
				$note->($name, $sent);
				$c->one("SELECT token_put('$name', owner => '$owner')");
			}
			1;
		} or do { eval { $c->quit }; undef $c; };
		for my $n (keys %held) { $note->($n, time) if $held{$n}[2] <= time; }
		sleep rand 0.02;
	}
	$note->($_, time) for keys %held;
	close $fh;
	return;
}

my @pids;
for my $number (1 .. 4)
{
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		# neither tests nor the end of the servers are this process's
		eval { client($number); 1 } or do { print STDERR "client: $@"; _exit(1) };
		_exit(0);
	}
	push @pids, $pid;
}

my %how = (backend => 0, server => 0, immediate => 0, clean => 0);
for my $crash (1 .. $crashes)
{
	my $pause = 1 + rand 4;
	my $kind = (sort keys %how)[ ($crash + $seed) % 4 ];

	sleep $pause;
	note(sprintf 'crash %d after %.2f s: %s', $crash, $pause, $kind);
	$how{$kind}++;
	if ($kind eq 'backend')
	{
		my $pid = eval {
			$node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity
				WHERE application_name LIKE 'w_' ORDER BY random() LIMIT 1");
		};
		kill 'KILL', $pid if $pid;
		# PostgreSQL 15 does not stop in the middle of this
		until_true(sub { eval { session($node)->one('SELECT 1') } }, 120);
	}
	elsif ($kind eq 'server')
	{
		$node->kill9;
		# its children end when they notice; until then memory is in use
		until_true(
			sub {
				# a start that fails takes the old pid file for a server
				$node->{_pid} = undef;
				return $node->start(fail_ok => 1);
			}, 120)
		  or die 'the server does not start';
	}
	else
	{
		$node->stop($kind eq 'clean' ? 'fast' : 'immediate');
		$node->start;
	}
}
# They go on after the last one, too, once its grace is over.
my $w = session($node);
my $grants = $w->one('SELECT grants FROM token_stats');
ok( until_true(
		sub { $w->one('SELECT grants FROM token_stats') >= $grants + 20 }),
	'the clients go on');
unlink $go_on;
my $failed = 0;
for my $pid (@pids)
{
	waitpid $pid, 0;
	$failed++ if $?;
}
is($failed, 0, 'no client failed');

my %beliefs;
for my $number (1 .. 4)
{
	for my $line (split /\n/, slurp_file("$dir/log.$number"))
	{
		my ($name, $fence, $from, $to) = split / /, $line;
		push @{ $beliefs{$name} }, [ $from, $to, $fence, $number ];
	}
}
my ($n, $longest_gap, @bad) = (0, 0);
for my $name (@names)
{
	my ($until, $who, $fence) = (0, 0, 0);
	for my $b (sort { $a->[0] <=> $b->[0] } @{ $beliefs{$name} || [] })
	{
		$n++;
		push @bad, "$name: client $b->[3] from $b->[0] with fence $b->[2], "
		  . "client $who until $until with fence $fence"
		  if ($b->[0] < $until && $b->[3] != $who) || $b->[2] < $fence
		  || ($b->[2] == $fence && $b->[3] != $who);
		($until, $who) = ($b->[1], $b->[3]) if $b->[1] > $until;
		$fence = $b->[2] if $b->[2] > $fence;
	}
}
is(join("\n", @bad), '', "never two holders, fences grow: $n beliefs, seed $seed");
cmp_ok($n, '>', 20, 'there was something to see');
$node->stop('immediate');
done_testing();
