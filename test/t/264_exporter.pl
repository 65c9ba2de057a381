# monitoring/: what Prometheus gets to see by its exporter with our queries, as
# a role that may do no more than monitor; and that the dashboard asks for
# nothing else.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use ClientTest;
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $folder = "$FindBin::RealBin/../../monitoring";
my $exporter = $ENV{POSTGRES_EXPORTER}
  // '/usr/bin/prometheus-postgres-exporter';
if (!-x $exporter)
{
	my $what = "needs Debian's package prometheus-postgres-exporter";
	die $what if $ENV{TOKENLOCK_TEST_CLIENTS};
	plan skip_all => $what;
}

my ($node, $watch) = client_server('exporter');
$watch->query('CREATE ROLE prometheus LOGIN IN ROLE pg_monitor');
$watch->query("CREATE TABLE jobs (id bigint PRIMARY KEY, pr int,
	status text DEFAULT '0', sid text)");
$watch->query('INSERT INTO jobs SELECT i, i FROM generate_series(1, 10) i');
$watch->query("SELECT job_table_set('jobs', order_by => 'pr')");

my $port = PostgreSQL::Test::Cluster::get_free_port();
local $ENV{DATA_SOURCE_NAME} =
  "user=prometheus host=$ENV{PGHOST} port=$ENV{PGPORT} dbname=postgres";
my $program = start(
	'exporter', $exporter,
	"--web.listen-address=127.0.0.1:$port",
	"--extend.query-path=$folder/tokenlock.yaml",
	'--disable-default-metrics', '--disable-settings-metrics');
END { kill TERM => $program->{pid} if $program }

# All metrics with our name, as { 'name{labels}' => value }.
sub metrics
{
	my $answer;

	until_true(
		sub {
			$answer =
			  HTTP::Tiny->new(timeout => 30)
			  ->get("http://127.0.0.1:$port/metrics");
			return $answer->{success};
		})
	  or die 'no metrics: ' . printed($program, 'err');
	return { $answer->{content} =~
		  /^((?:tokenlock|pg_exporter)\w*(?:\{.*\})?) (\S+)$/mg };
}

# One test: what a metric says; the labels after the database.
sub says
{
	my ($metrics, $name, $labels, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = grep {
		my $metric = $_;
		$metric =~ /^\Q$name\E\{/
		  && !grep { index($metric, $_) < 0 } 'datname="postgres"', @{$labels}
	} keys %{$metrics};

	is(@found, 1, "one $name @{$labels}") or return;
	my ($how, $value) = ref $expected ? @{$expected} : ('==', $expected);
	return cmp_ok($metrics->{ $found[0] }, $how, $value, 'its value');
}

my $metrics = metrics();
is((grep { /^pg_exporter_last_scrape_error/ && $metrics->{$_} == 0 }
			keys %{$metrics}),
	1, 'no query fails')
  or diag printed($program, 'err');
is((grep { /^pg_exporter_user_queries_load_error/ && $metrics->{$_} == 0 }
			keys %{$metrics}),
	1, 'the file can be read');
says($metrics, 'tokenlock_grants_total', [], 0);
says($metrics, 'tokenlock_held_tokens', ["scope=\"$_\""], 0)
  for qw(session transaction owner);
says($metrics, 'tokenlock_waiting_sessions', [], 0);
says($metrics, 'tokenlock_grace_seconds', [], 0);
says($metrics, 'tokenlock_memory_limit_bytes', [], 64 * 1024 * 1024);

my ($A, $B) = map { session($node) } 1 .. 2;
answers($A, q(token_get('a')), 't');
answers($A, q(token_get('b', owner => 'x', ttl => '1 h')), 't');
answers($A, q(token_get('b', owner => 'y')), 'f');
answers($A, q(token_get('b', owner => 'y', keep_place => '1 min')), 'f');
waits($watch, $B, q(token_get('a', wait => NULL)));
$A->query(q(SELECT claim_jobs(NULL::jobs, 'w1', 3)));
$A->query(q(SELECT claim_jobs(NULL::jobs, 'w1', 0, done => ARRAY[1])));
$A->query(q(SELECT claim_jobs(NULL::jobs, 'w2', 2, ttl => '1 ms')));
until_true(sub { $watch->one(
			q(SELECT NOT live FROM job_workers WHERE sid = 'w2')) eq 't' });

$metrics = metrics();
says($metrics, 'tokenlock_gets_total', [], [ '>=', 4 ]);
says($metrics, 'tokenlock_grants_total', [], 2);
says($metrics, 'tokenlock_refusals_total', [], [ '>=', 1 ]);
says($metrics, 'tokenlock_held_tokens', ['scope="session"'], 1);
says($metrics, 'tokenlock_held_tokens', ['scope="owner"'], 1);
says($metrics, 'tokenlock_held_oldest_seconds', ['scope="owner"'], [ '>', 0 ]);
says($metrics, 'tokenlock_waiting_sessions', [], 1);
says($metrics, 'tokenlock_waiting_places', [], 1);
says($metrics, 'tokenlock_waiting_longest_seconds', [], [ '>', 0 ]);
says($metrics, 'tokenlock_entries', [], 2);
says($metrics, 'tokenlock_memory_bytes', [], [ '>', 0 ]);
says($metrics, 'tokenlock_busiest_grants_total', ['name="b"'], 1);
says($metrics, 'tokenlock_jobs_claimed_total', ['job_table="jobs"'], 5);
says($metrics, 'tokenlock_jobs_finished_total', ['job_table="jobs"'], 1);
says($metrics, 'tokenlock_jobs_paused', ['job_table="jobs"'], 0);
says($metrics, 'tokenlock_jobs_lacks_index', ['job_table="jobs"'], 1);
says($metrics, 'tokenlock_workers_live', ['job_table="jobs"'], 1);
says($metrics, 'tokenlock_workers_lapsed', ['job_table="jobs"'], 1);
says($metrics, 'tokenlock_workers_lapsed_jobs', ['job_table="jobs"'], 2);

# The dashboard.
my $dashboard = decode_json(slurp_file("$folder/dashboard.json"));
my %known = map { /^(\w+)/ ? ($1 => 1) : () } keys %{$metrics};
my %asked = map { $_ => 1 }
  map { $_->{expr} =~ /(tokenlock_\w+)/g }
  map { @{ $_->{targets} } } @{ $dashboard->{panels} };
cmp_ok(scalar keys %asked, '>', 10, 'the dashboard asks for much');
is(join(' ', grep { !$known{$_} } sort keys %asked),
	'', 'and for nothing that is not there');
my %ids = map { $_->{id} => 1 } @{ $dashboard->{panels} };
is(scalar keys %ids, scalar @{ $dashboard->{panels} }, 'its panels have ids');

answers($A, q(token_put('a')), 't');
$B->result;
$node->stop;
done_testing();
