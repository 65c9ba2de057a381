# pg_upgrade into a new cluster: fences go on growing, job tables keep their
# settings, workers their rows.  Leases stay behind, the long ones too, and
# nothing is waited for: nobody holds anything in the new cluster.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $old = new_server('old',
	conf => "tokenlock.grace = '10min'\ntokenlock.job_ttl = '10min'\n");
my $bindir = $old->config_data('--bindir');

plan skip_all => "there is no pg_upgrade in $bindir"
  unless -x "$bindir/pg_upgrade";

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
$new->append_conf('postgresql.conf',
	"shared_preload_libraries = 'tokenlock'\ntokenlock.grace = '1s'\n"
	  . "tokenlock.job_ttl = '10min'\n");

# It leaves files where it runs.
chdir(PostgreSQL::Test::Utils::tempdir) or die;

sub upgrade
{
	my (@options) = @_;

	return [
		'pg_upgrade', '--no-sync', '--old-datadir', $old->data_dir,
		'--new-datadir', $new->data_dir, '--old-bindir', $bindir,
		'--new-bindir', $bindir, '--socketdir', $new->host,
		'--old-port', $old->port, '--new-port', $new->port, @options
	];
}

# The largest fence of each name so far.
my %last;

sub takes
{
	my ($c, $name, $ttl, $test) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($answer, $fence) = $c->row("SELECT answer, fence
		FROM token_request('$name', owner => 'w1', ttl => '$ttl')");

	is($answer, 'new', "$test: $name");
	cmp_ok($fence, '>', $last{$name}, 'with a larger fence')
	  if defined $last{$name};
	cmp_ok($fence, '<', 2**53, 'which any client can read');
	return $last{$name} = $fence;
}

# A database that has used everything, and one that has used nothing.
$old->safe_psql('postgres', $_)
  for 'CREATE DATABASE idle', 'CREATE ROLE app LOGIN',
  'ALTER ROLE app SET tokenlock.session_tokens = off';
$old->safe_psql('idle', 'CREATE SCHEMA s; CREATE EXTENSION tokenlock SCHEMA s');
# As after many failovers: far above what a new extension begins with.
$old->safe_psql('postgres', "SELECT setval('tokenlock_fence', 200::bigint << 44)");
my $A = session($old);
takes($A, $_, '5min', 'a short lease') for 'k', 'short';
cmp_ok($last{k}, '>=', 200 << 44, 'which has not begun anew');
answers($A, "token_put('k', owner => 'w1')", 't');
takes($A, 'long', '1h', 'a long lease');
answers($A, "(SELECT answer FROM token_request('long', owner => 'w2',
	keep_place => '10min'))", 'queued', 'and a place in line');
$A->query($_) for
  'CREATE SCHEMA "My Jobs"',
  q(CREATE TABLE "My Jobs".mails (n int PRIMARY KEY,
	state text DEFAULT 'new', worker text, tries int)),
  q(INSERT INTO "My Jobs".mails SELECT generate_series(1, 4)),
  q(ALTER TABLE "My Jobs".mails OWNER TO app),
  'GRANT ALL ON SCHEMA "My Jobs" TO app',
  q(SELECT job_table_set('"My Jobs".mails', status_column => 'state',
	sid_column => 'worker', ready_status => 'new', attempts_column => 'tries',
	max_attempts => 3, order_by => 'n DESC', ttl => '20 min', wake => true));
answers($A, q((SELECT string_agg(n::text, ',')
	FROM claim_jobs(NULL::"My Jobs".mails, 'a', 2))), '4,3', 'claimed');
my $settings = q(SELECT to_jsonb(s) - 'job_table' || jsonb_build_object(
		'job_table', s.job_table::text)
	FROM tokenlock_job_settings s);
my $set = $A->one($settings);
$A->quit;
$old->stop;

# What is only checked, or given up, leaves the old cluster as it was.
command_ok(upgrade('--check'), 'pg_upgrade --check');
$old->start;
$A = session($old);
answers($A, "token_fence('$_', owner => 'w1')", $last{$_},
	"$_ is held in the old cluster after that") for 'short', 'long';
$A->quit;
$old->stop;

command_ok(upgrade(), 'pg_upgrade');
$new->start;

my $B = session($new);
answers($B, '(SELECT count(*) FROM token_holders)', '0', 'no lease is carried');
answers($B, '(SELECT count(*) FROM token_waiters)', '0', 'nor a place');
is($B->one('SELECT grace_until FROM token_stats'), undef,
	'none is waited for');
answers($B, "token_renew('$_', owner => 'w1')", 'f',
	"the holder of $_ is told so") for 'short', 'long';
is($B->fails("SELECT token_guard('long', owner => 'w1', fence => $last{long})")
	  ->code, '55000', 'and cannot guard with it');
takes($B, $_, '5min', 'granted at once') for 'k', 'short', 'long', 'first';
answers($B, "token_put_all(owner => 'w1')", '4');
takes($B, 'long', '1h', 'a long lease');

is($B->one($settings), $set, 'the settings of a job table are there');
answers($B, q((SELECT string_agg(n::text, ',')
	FROM claim_jobs(NULL::"My Jobs".mails, 'b', 1))), '2',
	'in force; and a worker keeps its rows for its ttl');
answers($B, q(finish_jobs('"My Jobs".mails', 'a', ARRAY[3, 4])), '2',
	'and can finish them');
answers($B, q((SELECT n FROM claim_jobs(NULL::"My Jobs".mails, 'b', 1,
	done => ARRAY[2]))), '1');
my $W = session($new);
$W->send(q(SELECT n FROM claim_jobs(NULL::"My Jobs".mails, 'c', 1,
	wait => '2min')));
ok( until_true(
		sub {
			$B->one('SELECT waiting FROM job_tables') == 1;
		}),
	'a worker waits');
my $app = session($new, user => 'app');
$app->query(q(INSERT INTO "My Jobs".mails VALUES (5)));
is($W->answer, '5', 'and is woken by its trigger');
is($app->fails("SELECT token_get('k')")->code, '55000',
	'what roles have set is in force');
is( $app->fails(q(SELECT job_table_set('"My Jobs".mails', paused => true))),
	undef, 'an owner may change what is set');
$_->quit for $app, $W, $B;

# A crash, and the database that had used nothing.
$new->stop('immediate');
$new->start;
$B = session($new);
answers($B, "token_fence('long', owner => 'w1')", $last{long},
	'a long lease of the new cluster survives');
answers($B, "token_put('long', owner => 'w1')", 't');
takes($B, $_, '10min', 'after a crash') for 'k', 'long';
$B->quit;
$B = session($new, dbname => 'idle');
answers($B, "s.token_get('k', owner => 'w1')", 't',
	'the other database is of use');
$B->quit;
$new->stop;
done_testing();
