# Many processes take a few tokens in every mode, alone, shared, as permits,
# several at once, by places; leases lapse, tokens are broken, sessions killed.
# Each writes down from when to when it certainly held what, and afterwards no
# two that exclude each other may have done so at a time.
#
# Times are of one clock: from the answer of the get to before the put is sent
# or, of a lease, to the end of its ttl counted from before the get was sent.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);
use TokenlockTest;

my $seconds = $ENV{TOKENLOCK_STRESS_SECONDS} || (full_run() ? 60 : 10);
my $seed = $ENV{TOKENLOCK_STRESS_SEED} || time;
note("seed $seed");

my $node = new_server('modes',
	conf => "max_connections = 100\ntokenlock.default_ttl = '80ms'\nlog_statement = none\n"
	  . "log_min_messages = warning\nlog_min_error_statement = panic\n"
	  . "deadlock_timeout = 100ms\n");
my $w = session($node, app => 'watch');

my $default_ttl = 0.08;

sub now { return clock_gettime(CLOCK_MONOTONIC); }
my $until = now() + $seconds;

# One client: prints "name mode capacity from to fence" for each hold, or
# "died: ..".  mode: x alone, s shared, p permit.
sub client
{
	my ($id) = @_;
	my $c = session($node);
	my $life = 0;
	my @log;

	while (now() < $until)
	{
		my $name = ('a', 'b', 'c')[ rand 3 ];
		my $mode = ('x', 's', 's', 'p', 'p')[ rand 5 ];
		my $capacity = $mode eq 'p' ? 2 + int rand 3 : 1;
		my $own = rand() < 0.5 ? ", owner => 'w$id.$life'" : '';
		my $ttl = rand() < 0.5 ? 0.01 + rand 0.1 : undef;
		my $args = $mode eq 's' ? ', shared => true'
		  : $mode eq 'p' ? ", capacity => $capacity" : '';
		my $wait = ('0', '5ms', '1s', '20s')[ rand 4 ];
		my $place = $own && rand() < 0.3 ? ", keep_place => '30ms'" : '';
		my $t = defined $ttl ? sprintf(", ttl => '%d us'", $ttl * 1e6) : '';
		my $several = rand() < 0.1 && $mode eq 'x';
		my $sql = $several
		  ? "SELECT token_get_all('{c,$name,b}', wait => '$wait'$own)::text, NULL"
		  : "SELECT granted, fence FROM token_request('$name',
			wait => '$wait'$own$args$t$place)";
		my %list = map { $_ => 1 } $several ? ('c', 'b', $name) : $name;
		my @names = sort keys %list;
		my $end = "SELECT token_put_all(ARRAY['" . join("','", @names) . "']$own)";

		my $sent = now();
		$c->send($sql);
		if ($wait ne '0' && rand() < 0.1)
		{
			sleep rand 0.01;
			$c->cancel;
		}
		my $res = $c->result(60);
		if (my $e = $res->{error})
		{
			die "$e in $sql" if $e->code !~ /^(57014|40P01|57P01|08006)$/;
			if ($c->lost) { $c = session($node); $life++; }
			else          { $c->query($end); }
			next;
		}
		next if $res->{rows}[0][0] !~ /^t/;
		my $from = now();
		my $to = 9**9**9;
		$to = $sent + $ttl if defined $ttl && !$several;
		$to = $sent + $default_ttl if $own && (!defined $ttl || $several);
		my $was_fence = $res->{rows}[0][1];

		# what it holds may become a hold of its own
		my $up;
		if ($mode eq 's' && rand() < 0.3)
		{
			my $r = $c->send("SELECT granted, fence FROM token_request('$name',
				wait => '50ms'$own)")->result(60);
			die $r->{error} if $r->{error} && $r->{error}->code !~ /^(40P01|57P01|08006)$/;
			# its lease starts anew then, unless it had lapsed before
			if (!$r->{error} && $r->{rows}[0][0] eq 't') { $up = now(); }
		}
		sleep rand 0.005;
		my $put = now();
		if (rand() < 0.02)
		{
			# somebody kills us: a session's tokens go, an owner's stay
			$w = session($node);
			$w->send('SELECT pg_terminate_backend(' . $c->pid . ')');
			$w->result;
			$c = session($node);
			$life++;
		}
		elsif (rand() < 0.1 && defined $was_fence)
		{
			$w = session($node);
			$w->query("SELECT token_break('$name', fence) FROM token_holders
				WHERE name = '$name' AND fence = $was_fence");
			$c->query($end);
		}
		else
		{
			$c->query($end);
		}
		$to = $put if $put < $to;
		for my $n (@names)
		{
			push @log, join(' ', $n, $mode, $capacity, $from, $to, $was_fence // 0)
			  if $to > $from;
			# after an upgrade, while the first ttl certainly runs: alone
			push @log, join(' ', $n, 'x', 1, $up, $to, 0)
			  if $up && $to > $up;
		}
	}
	return join "\n", @log;
}

my @out;
my $clients = full_run() ? 40 : 24;
for my $id (1 .. $clients)
{
	my $pid = open($out[$id], '-|') // die "could not fork: $!";
	next if $pid;
	srand $seed + $id;
	my $said = eval { client($id) } // "died: $@";
	print STDOUT $said;
	close STDOUT;
	POSIX::_exit(0);
}

my (%holds, @died);
for my $id (1 .. $clients)
{
	my $fh = $out[$id];
	while (my $line = <$fh>)
	{
		chomp $line;
		if ($line =~ /^died/) { push @died, "$id: $line"; next; }
		my ($name, $mode, $capacity, $from, $to, $fence) = split ' ', $line;
		next if !defined $fence;
		push @{ $holds{$name} },
		  { id => $id, mode => $mode, capacity => $capacity, from => $from, to => $to };
	}
	close $fh;
}
is("@died", '', 'all clients went through');

# Sweep over each name: who holds together, and may they?
for my $name (sort keys %holds)
{
	my @h = sort { $a->{from} <=> $b->{from} } @{ $holds{$name} };
	my (@active, @bad, %seen);
	my $together = 0;
	for my $h (@h)
	{
		@active = grep { $_->{to} > $h->{from} } @active;
		# its own shared hold, upgraded, is no other
		my @others = grep { $_->{id} != $h->{id} } @active;
		$together = @others + 1 if @others + 1 > $together;
		$seen{ $h->{mode} }++;
		my @permits = grep { $_->{mode} ne 's' } @others, $h;
		my @shared = grep { $_->{mode} eq 's' } @others, $h;
		push @bad, 'shared beside permits' if @permits && @shared;
		for my $p (@permits)
		{
			push @bad, "$p->{capacity} permits, " . @permits . ' holders'
			  if @permits > $p->{capacity};
		}
		push @active, $h;
	}
	is("@bad", '', "$name: " . @h . " holds, up to $together together");
	cmp_ok($together, '>', 1, "$name: some held together");
	cmp_ok($seen{$_} // 0, '>', 5, "$name: mode $_ was used") for qw(x s p);
}

$w = session($node);
ok( until_true(
		sub {
			$w->one("SELECT (SELECT count(*) FROM token_holders
					WHERE expires_at IS NULL OR expires_at > clock_timestamp() + '1min')
				+ (SELECT count(*) FROM token_waiters)") == 0;
		}),
	'nobody waits, and all that is left is leases');

done_testing();
