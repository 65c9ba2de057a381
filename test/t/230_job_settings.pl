# What job_table_set has set is dumped and restored with the tables, names that
# need quotes and other schemas included, and goes with a table that is dropped.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $node = new_server('settings');
my $A = session($node);
my $all = 'SELECT job_table, id_column, status_column, sid_column,
	ready_status, ttl, paused FROM tokenlock_job_settings ORDER BY 2, 3, 4';

$A->query('CREATE EXTENSION IF NOT EXISTS tokenlock');
$A->query('CREATE SCHEMA "My Schema"');
$A->query(q(CREATE TABLE "My Schema"."The ""Jobs" (n int, m int NOT NULL,
	"St" text DEFAULT 'new', w text, PRIMARY KEY (n, m))));
$A->query(q(INSERT INTO "My Schema"."The ""Jobs" SELECT 1, generate_series(1, 9)));
$A->query(q(SELECT job_table_set('"My Schema"."The ""Jobs"', id_column => 'm',
	status_column => 'St', sid_column => 'w', ready_status => 'new',
	ttl => '90 min')));
$A->query("CREATE TABLE gone (id int PRIMARY KEY, status text, sid text)");
$A->query("SELECT job_table_set('gone', paused => true)");
$A->query("CREATE TEMP TABLE mine (id int PRIMARY KEY, status text, sid text)");
$A->query("SELECT job_table_set('mine', paused => true)");
is($A->one('SELECT count(*) FROM tokenlock_job_settings'), 3, 'three rows');

# A drop that is rolled back takes nothing along, one that commits does.
$A->query($_) for 'BEGIN', 'DROP TABLE gone', 'ROLLBACK';
is($A->one('SELECT count(*) FROM tokenlock_job_settings'), 3,
	'a drop that is rolled back');
$A->query('DROP TABLE gone');
is($A->one('SELECT count(*) FROM tokenlock_job_settings'), 2, 'a drop');

# Those of temporary tables stay behind.
for my $format ('plain', 'custom')
{
	my $file = $node->basedir . "/dump.$format";
	my $db = "restored_$format";

	$node->command_ok(
		[ 'pg_dump', '-F', $format, '-f', $file, $node->connstr('postgres') ],
		"$format dump");
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->command_ok(
		$format eq 'plain'
		? [ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file,
			$node->connstr($db) ]
		: [ 'pg_restore', '-e', '-d', $node->connstr($db), $file ],
		'is restored');
	is( $node->safe_psql($db, $all),
		'"My Schema"."The ""Jobs"|m|St|w|new|01:30:00|', 'with its settings');
	is( $node->safe_psql(
			$db,
			q(SELECT m, "St", w FROM claim_jobs(NULL::"My Schema"."The ""Jobs",
			'w1', 2))),
		"1|2|w1\n2|2|w1",
		'which are in force');
}

# A session that ends drops its temporary tables.
$A->quit;
ok( until_true(
		sub
		{
			$node->safe_psql('postgres',
				'SELECT count(*) FROM tokenlock_job_settings') == 1;
		},
		30),
	'the settings of a temporary table go with it');

# The extension goes, with and without job tables of the same schema.
$node->safe_psql('restored_plain', 'DROP EXTENSION tokenlock');
$node->safe_psql('restored_plain', 'CREATE EXTENSION tokenlock');
is($node->safe_psql('restored_plain', $all), '', 'a new extension has none');
$node->safe_psql(
	'restored_custom', q(CREATE SCHEMA s;
	ALTER TABLE "My Schema"."The ""Jobs" SET SCHEMA s;
	ALTER EXTENSION tokenlock SET SCHEMA s; DROP SCHEMA s CASCADE));
$node->safe_psql('restored_custom', 'CREATE EXTENSION tokenlock');
is($node->safe_psql('restored_custom', $all), '', 'all at once');

$node->stop;
done_testing();
