# Failover: the promoted standby grants nothing while a lease of the former
# primary may run, knows its long leases, and goes on with larger fences; the
# former primary comes back as a standby.
# P34 P08 P90

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use TokenlockTest;

my $one = new_server(
	'one',
	init => { allows_streaming => 1, extra => ['--data-checksums'] },
	conf => "fsync = on\nwal_log_hints = on\nwal_keep_size = 256MB\n"
	  . "tokenlock.grace = '20s'\ntokenlock.default_ttl = '2s'\n"
	  . "tokenlock.job_ttl = '8s'\n");
$one->safe_psql('postgres', $_)
  for 'CREATE DATABASE never', 'CREATE DATABASE later',
  "CREATE TABLE jobs (id int PRIMARY KEY, status text DEFAULT '0', sid text)",
  'INSERT INTO jobs SELECT generate_series(1, 4)';
$one->safe_psql($_, 'CREATE EXTENSION tokenlock') for 'never', 'later';
$one->safe_psql('never', "SELECT token_get('k')");

my $copies = 0;

# A standby of a server.
sub standby_of
{
	my ($node, $name) = @_;
	my $backup = 'b' . ++$copies;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$node->backup($backup);
	$standby->init_from_backup($node, $backup, has_streaming => 1);
	# settings are not replicated: the recorded one counts
	$standby->append_conf('postgresql.conf', "tokenlock.grace = '1s'");
	$standby->start;
	return $standby;
}

sub grace_left
{
	my ($c) = @_;
	return $c->one('SELECT extract(epoch FROM grace_until - clock_timestamp())
		FROM token_stats');
}

my $two = standby_of($one, 'two');
my $A = session($one);
my ($short) = $A->row("SELECT fence FROM token_request('leader',
	owner => 'n1', ttl => '15s')");
my $given = time;
my ($long) = $A->row("SELECT fence FROM token_request('long',
	owner => 'n1', ttl => '10min')");
answers($A, "token_get('put', owner => 'n1', ttl => '10min')", 't');
answers($A, "token_put('put', owner => 'n1')", 't');
answers($A, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'w1', 2))", '2');
$A->quit;
my $R = session($two);
is($R->fails("SELECT token_get('leader')")->code, '55000',
	'a standby answers with an error');
is($R->one('SELECT count(*) FROM token_holders'), '0', 'its views can be read');
is($R->one('SELECT grace_until FROM token_stats'), undef, 'all of them');
$one->wait_for_catchup($two);
$one->stop('immediate');
my $promoted = time;
$two->promote;

my ($granted, $answer) =
  $R->row("SELECT granted, answer FROM token_request('leader', owner => 'n2')");
is($granted, 'f', 'P34: a session from before the promotion is not granted');
is($answer, 'grace', 'P34: as there is a grace');
my $left = grace_left($R);
cmp_ok($left, '>', 20 - (time - $promoted) - 1,
	'which is the whole of the largest setting');
cmp_ok($left, '<=', 20, 'and no more');
answers($R, "token_renew('leader', owner => 'n1')", 'f',
	'P34: a short lease is lost');
answers($R, "token_fence('long', owner => 'n1')", $long,
	'P34: a long one is there, with its fence');
answers($R, "token_renew('long', owner => 'n1')", 't', 'P34: can be renewed');
$R->query('BEGIN');
answers($R, "token_guard('long', owner => 'n1')", $long, 'and guard');
is($R->fails('COMMIT'), undef, 'a commit');
answers($R, "token_renew('put', owner => 'n1')", 'f', 'what was put is not');

# P90: the worker's rows.
is($R->one("SELECT count(*) FROM claim_jobs(NULL::jobs, 'w2', 4)"), '2',
	'P90: ready rows are handed out at once, a worker\'s are not');
my $seen = time;

my $C = session($two, dbname => 'never');
answers($C, "token_get('k')", 't', 'no grace where no lease was ever given');
answers($C, "token_get('l', owner => 'n1', ttl => '1s')", 't', 'nor then');
$C->quit;

# A crash in it, and a clean stop.
$R->quit;
$two->stop('immediate');
$two->start;
$R = session($two);
cmp_ok(grace_left($R) // 0, '>', 1, 'a crash of the new primary in the grace');
answers($R, "token_fence('long', owner => 'n1')", $long);
$R->quit;
$two->restart;
$R = session($two);
cmp_ok(grace_left($R) // 0, '>', 0, 'and a restart');
ok(time - $seen >= 8
	  || $R->one("SELECT count(*) FROM claim_jobs(NULL::jobs, 'w3', 4)") eq '0',
	'P90: the worker has one ttl to come back');
ok( until_true(
		sub {
			$R->one("SELECT count(*) FROM jobs WHERE id IN (1, 2) AND sid = 'w3'
				OR EXISTS (SELECT FROM claim_jobs(NULL::jobs, 'w3', 4))");
			return $R->one(
				"SELECT count(*) FROM jobs WHERE id IN (1, 2) AND sid = 'w3'")
			  == 2;
		}),
	'P90: then its rows are taken over');
my ($ok, $fence) = $R->row("SELECT granted, fence FROM token_request('leader',
	wait => '5min', owner => 'n2', ttl => '1s')");
is($ok, 't', 'P34: a waiting get is granted');
cmp_ok(time - $promoted, '>=', 20, 'P34: not before the grace is over');
cmp_ok($fence, '>', $_, 'with a larger fence') for $short, $long;
note(sprintf 'first grant %.1f s after the promotion', time - $promoted);
$R->quit;
$two->stop('immediate');
$two->start;
$R = session($two);
cmp_ok(grace_left($R) // 0, '<=', 2, 'a later crash has no whole grace again');
answers($R, "token_get('leader', wait => '1min', owner => 'n2', ttl => '1s')", 't');
($fence) = $R->row("SELECT token_fence('leader', owner => 'n2')");

# The former primary returns.
$one->start;
$one->safe_psql('postgres', "CREATE TABLE diverged ()");
$one->stop;
command_ok(
	[
		'pg_rewind', '--source-server', $two->connstr('postgres'),
		'--target-pgdata', $one->data_dir
	],
	'pg_rewind of the former primary');
{
	my $port = $one->port;
	my $name = $one->name;

	$one->append_conf('postgresql.conf', "port = $port\n");
	$one->append_conf('postgresql.auto.conf', "primary_conninfo = '"
		  . $two->connstr . " application_name=$name'\n");
	$one->append_conf('postgresql.conf', "tokenlock.grace = '10s'");
	$one->set_standby_mode;
}
$one->start;
my $B = session($one);
is($B->fails("SELECT token_get('leader')")->code, '55000',
	'it is a standby now');
answers($R, "token_get('later', owner => 'n1', ttl => '10min')", 't');
my $later = $R->one("SELECT token_fence('later', owner => 'n1')");
answers($R, "(SELECT answer FROM token_request('long', owner => 'n5',
	keep_place => '1h'))", 'queued', 'a place');
answers($R, "(SELECT count(*) FROM claim_jobs(NULL::jobs, 'w3', 4, ttl => '1h'))",
	'4', 'and a worker');
$two->wait_for_catchup($one);
$R->quit;
$two->stop;
ok(-e $two->data_dir . '/pg_stat/tokenlock.state',
	'a clean stop of the primary: a switch-over');
$one->promote;
cmp_ok(grace_left($B) // 0, '>', 1, 'there is a grace as well');
answers($B, "token_fence('$_->[0]', owner => 'n1')", $_->[1], "$_->[0] is there")
  for [ 'long', $long ], [ 'later', $later ];
($ok, $fence) = $B->row("SELECT granted, fence FROM token_request('leader',
	wait => '5min', owner => 'n3', ttl => '1s')");
cmp_ok($fence, '>', $later, 'fences go on growing');

# The other one as a standby: the file of its stop must not come back.
$two->append_conf('postgresql.auto.conf', "primary_conninfo = '"
	  . $one->connstr . " application_name=two'\n");
$two->set_standby_mode;
$two->start;
ok(!-e $two->data_dir . '/pg_stat/tokenlock.state',
	'a standby drops the file of a clean stop');
$R = session($two);
is($R->one("SELECT count(*) FROM $_"), '0', "and has no $_")
  for qw(token_holders token_waiters job_workers);

# A promotion without the last WAL.
$one->wait_for_catchup($two);
$R->quit;
$two->stop;
# after a start fences are reserved anew, which the standby does not see
$B->quit;
$one->restart;
$B = session($one);
answers($B, "token_get('unseen', owner => 'n1', ttl => '10min')", 't');
answers($B, "token_get('unseen2', owner => 'n1', ttl => '10s')", 't');
my $unseen = $B->one("SELECT token_fence('unseen', owner => 'n1')");
$B->quit;
$one->stop('immediate');
$two->start;
$two->promote;
$R = session($two);
is($R->one("SELECT answer FROM token_request('unseen2', owner => 'n2')"),
	'grace', 'the last WAL is missing: a grace as well');
($ok, $fence) = $R->row("SELECT granted, fence FROM token_request('unseen2',
	wait => '5min', owner => 'n2', ttl => '1s')");
is($ok, 't');
cmp_ok($fence, '>', $unseen, 'and the fence is larger than those that are lost');
$R->quit;
$two->stop('immediate');
done_testing();
