# Clients take, renew, put and guard leases of all lengths while the server
# crashes, restarts and fails over to its synchronous standby, at random.
# HistoryCheck.pm looks in their logs: never may two believe to hold a token,
# fences grow, a guarded transaction has committed only with its token, and long
# leases are not lost.
#
# TL_SEED repeats a run (as far as a race can be repeated), TL_CRASHES says how
# often something happens to the server, and TL_KINDS what.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Path ();
use HistoryCheck;
use HistoryClient;
use List::Util qw(shuffle);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use TokenlockTest;

my $seed = $ENV{TL_SEED} || time & 0xffff;
my $crashes = $ENV{TL_CRASHES} || (full_run() ? 25 : 4);
my $clients = 8;
# what is forgotten in a crash should outlast it, and is waited for each time
my $grace = $crashes > 4 ? 3 : 2;

# By what is left after them: a crash loses leases in memory, a restart nothing.
my @kinds = split ' ',
  $ENV{TL_KINDS} || 'backend server immediate restart failover';

note("seed $seed, $crashes crashes, $clients clients");
srand($seed);

my %conf = (
	fsync => 'on',
	restart_after_crash => 'on',
	max_connections => 50,
	wal_keep_size => "'256MB'",
	wal_retrieve_retry_interval => "'100ms'",
	synchronous_standby_names => "'one, two'",
	log_statement => 'none',
	log_replication_commands => 'off',
	log_min_error_statement => 'panic',
	'tokenlock.grace' => sprintf "'%d ms'", 1000 * $grace);

# Nothing waits for the standby that is not there yet.
my $primary = new_server('one',
	init => { allows_streaming => 1 },
	bare => 1,
	conf => join '', map { "$_ = $conf{$_}\n" } sort keys %conf);
my $standby = PostgreSQL::Test::Cluster->new('two');
my $dir = $primary->basedir . '/history';
my $rebuilt = 0;
my $failovers = 0;
my ($w, $log);

mkdir $dir;
open $log, '>', "$dir/parent" or die $!;
rebuild($standby, $primary);
$w = session($primary);
$w->query('CREATE EXTENSION tokenlock');
$w->query('CREATE TABLE work (name text, fence bigint, client text, req int,
	xid xid8, snapshot pg_snapshot)');
append_to_file("$dir/go_on", '');
clients_turn_to($primary);

my @pids;
for my $id (1 .. $clients)
{
	push @pids, in_child(
		sub {
			HistoryClient->new(
				id => $id,
				dir => $dir,
				seed => $seed * 1000 + $id,
				names => [qw(a b c)],
				short => [ map { $grace * $_ } 0.1, 0.3, 0.7, 0.95 ],
				long => [ map { $grace * $_ } 1.3, 2.5 ])->run;
		});
}

# Each kind comes as often as the others, and a short run has a failover.
my $began = now();
my @plan = $crashes < @kinds ? 'failover' : ();
push @plan, shuffle @kinds while @plan < $crashes;
for my $number (1 .. $crashes)
{
	my $kind = shift @plan;

	# One in four comes upon what the last one has left.
	if ($number == 1 || rand() < 0.75)
	{
		grants_go_on(10) or die 'no token is granted any more';
	}
	sleep rand 1;
	note(sprintf '%.1f s: %d, %s', now() - $began, $number, $kind);
	main->can("do_$kind")->();
}
grants_go_on(10) or die 'no token is granted any more';
unlink "$dir/go_on";
children_did_well('no client met an error that it should not meet', @pids);

# What has committed is what the last primary has.
write_log(0, 'work', @$_)
  for session($primary)->rows('SELECT name, fence, client, req, xid, snapshot
	FROM work');
close $log;
my $check =
  HistoryCheck->new($grace, "$dir/parent", map { "$dir/client.$_" } 1 .. $clients);
my @violations = $check->violations;
my $count = $check->count;

ok(!@violations, "the checker finds nothing wrong, seed $seed")
  or diag(join "\n", scalar(@violations) . " complaints; logs are in $dir",
	@violations > 20 ? @violations[ 0 .. 19 ] : @violations);
note(sprintf 'grants %d, beliefs %d for %d s, guarded transactions %d',
	@{$count}{qw(grants beliefs believed work)});
note(join ', ', map { "$_ $count->{$_}" } sort grep { $count->{$_} } keys %$count);

# It proves something only if enough has happened.
cmp_ok($count->{grants}, '>', 3 * $crashes, 'enough grants');
cmp_ok($count->{work}, '>', $crashes, 'enough guarded transactions');
cmp_ok($count->{kept}, '>', 0, 'long leases went on after a crash');
cmp_ok($count->{grace}, '>', 0, 'and there was a grace');
cmp_ok($count->{unanswered}, '>', 0, 'answers were lost');
for my $node ($primary, $standby)
{
	my @bad = grep { /PANIC|TRAP/ } split /\n/, slurp_file($node->logfile);
	is("@bad", '', 'the log of ' . $node->name . ' is clean');
	$node->stop('immediate');
}
done_testing();

#
# What happens to the server.  Clients may be told that a lease is gone between
# the two times that a crash is written down with.
#
sub now { return HistoryClient::now(); }

sub write_log
{
	my ($at, @fields) = @_;
	syswrite $log, join("\t", sprintf('%.6f', $at), 'parent', @fields) . "\n";
	return;
}

# The clients' log, which is the only one that tells, may be behind; but a
# server's count is of itself.
sub grants_go_on
{
	my ($least, $limit) = @_;
	my $before;

	return until_true(
		sub {
			my $n = eval {
				$w //= session($primary);
				$w->one('SELECT grants FROM token_stats');
			};
			if (!defined $n)
			{
				undef $w;
				return 0;
			}
			$before //= $n;
			return $n >= $before + $least;
		}, $limit // 120);
}

# Clients do not look for a server that they do not know of.  Returns the time.
sub hide_primary
{
	unlink "$dir/primary";
	return now();
}

# Waits for the server, and lets the clients come.
sub is_back
{
	my ($from, $event, $kind) = @_;

	until_true(
		sub {
			eval {
				session($primary)->one('SELECT pg_is_in_recovery()') eq 'f';
			};
		}, 120)
	  or die 'the server does not come back';
	undef $w;
	write_log($from, $event, sprintf('%.6f', now()), $kind);
	clients_turn_to($primary);
	return;
}

sub do_backend
{
	my $s = session($primary);
	my $pid = $s->one("SELECT pid FROM pg_stat_activity
		WHERE application_name = 'history' OR backend_type <> 'client backend'
		ORDER BY random() LIMIT 1");
	my $from = hide_primary();

	# the session that asked ends when the postmaster has noticed
	if (  !defined $pid
		|| !kill('KILL', $pid)
		|| !$s->fails('SELECT pg_sleep(60)'))
	{
		note('there was nobody to kill');
		clients_turn_to($primary);
		return;
	}
	is_back($from, 'crash', 'backend');
	return;
}

# The state of a process, and its parent.
sub process
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/stat" or return ('gone', 0);
	my ($state, $parent) = (<$fh> // '') =~ /\) (\S) (\d+)/;
	return ($state // 'gone', $parent // 0);
}

# All of a server's processes; those that it starts meanwhile, too.
sub kill_all
{
	my ($node) = @_;
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

	kill 'STOP', $postmaster;
	until_true(sub { (process($postmaster))[0] =~ /T|t/ });
	my @all = ($postmaster,
		grep { (process($_))[1] == $postmaster }
		map { m{/(\d+)$} ? $1 : () } glob '/proc/[0-9]*');
	kill 'KILL', @all;
	# a zombie would keep the next postmaster from starting
	until_true(sub { !grep { (process($_))[0] ne 'gone' } @all })
	  or die 'a killed process lives on';
	$node->{_pid} = undef;
	return;
}

sub do_server
{
	my $from = hide_primary();
	kill_all($primary);
	$primary->start;
	is_back($from, 'crash', 'server');
	return;
}

sub do_immediate
{
	my $from = hide_primary();
	$primary->stop('immediate');
	$primary->start;
	is_back($from, 'crash', 'immediate');
	return;
}

sub do_restart
{
	my $from = hide_primary();
	$primary->restart;
	is_back($from, 'event', 'restart');
	return;
}

# The primary is stopped first, in one way or another.  A standby that was cut
# off before lacks what nobody has waited for: reservations of leases and fences.
sub do_failover
{
	my $how = (qw(kill immediate fast))[ rand 3 ];
	my $cut = ($seed + $failovers++) % 2;

	if ($cut)
	{
		append_to_file("$dir/cut", '');
		$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
		$standby->reload;
		my $s = session($primary);
		until_true(
			sub { $s->one('SELECT count(*) FROM pg_stat_replication') == 0 });
		$s->quit;
		# commits and long leases wait now, others go on after a crash, with new
		# fences; unless all is held by those that wait
		do_immediate();
		grants_go_on(5, 3 * $grace);
	}
	my $from = hide_primary();
	unlink "$dir/cut";
	if ($how eq 'kill') { kill_all($primary); }
	else                { $primary->stop($how); }
	$standby->promote;
	($primary, $standby) = ($standby, $primary);
	is_back($from, 'crash', 'failover');
	# a promoted server that has not waited for all of its grace
	do_immediate() if rand() < 0.3;
	write_log($from, 'event', now(), $cut ? 'standby cut off' : 'standby followed');
	rebuild($standby, $primary);
	return;
}

sub clients_turn_to
{
	my ($node) = @_;
	open my $fh, '>', "$dir/primary.new" or die $!;
	print {$fh} $node->host, ' ', $node->port, "\n";
	close $fh;
	rename "$dir/primary.new", "$dir/primary" or die $!;
	return;
}

# Makes a server a standby of another, from what it was or from nothing.
sub rebuild
{
	my ($node, $of) = @_;
	my $data = $node->data_dir;
	my $source = $of->connstr('postgres');

	if (-e "$data/PG_VERSION" && rand() < 0.6)
	{
		# the new timeline is in the control file after a checkpoint only
		$of->safe_psql('postgres', 'CHECKPOINT');
		system_or_bail('pg_rewind', '-D', $data, '--source-server', $source);
		write_log(now(), 'event', now(), 'pg_rewind');
	}
	else
	{
		File::Path::rmtree($data);
		system_or_bail('pg_basebackup', '-D', $data, '-d', $source,
			'--checkpoint', 'fast', '--no-sync');
		write_log(now(), 'event', now(), 'pg_basebackup') if $rebuilt;
	}
	$node->append_conf('postgresql.conf', join "\n",
		'',
		'port = ' . $node->port,
		"primary_conninfo = '" . $of->connstr . "'");
	$node->set_standby_mode;
	$node->start;
	$rebuilt++;
	return;
}
