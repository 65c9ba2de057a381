# What a role that is no superuser meets: the database's owner creates the
# extension, dumps the database and restores it, and fences go on growing.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $node = new_server('hostile', bare => 1);
my $dump = $node->basedir . '/dump.sql';

$node->safe_psql('postgres',
	'CREATE ROLE db_owner LOGIN; CREATE ROLE other LOGIN;
	 CREATE DATABASE source OWNER db_owner;
	 CREATE DATABASE target OWNER db_owner');

sub fence
{
	my ($database) = @_;
	my $c = session($node, dbname => $database, user => 'db_owner');
	my $fence = $c->one("SELECT fence FROM app.token_request('k')");

	$c->quit;
	return $fence;
}

my $c = session($node, dbname => 'source', user => 'db_owner');
$c->query('CREATE SCHEMA app');
$c->query('CREATE EXTENSION tokenlock SCHEMA app');
$c->quit;
my $before = fence('source');

# Fences as they are after some failovers: above those that a new extension
# begins with.
my $far = $before + 3 * 2**44;
$node->safe_psql('source', "SELECT setval('app.tokenlock_fence', $far)");

command_ok(
	[
		'pg_dump', '-h', $node->host, '-p', $node->port, '-U', 'db_owner',
		'-f', $dump, 'source'
	],
	"the database's owner dumps it");
command_ok(
	[
		'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-h', $node->host,
		'-p', $node->port, '-U', 'db_owner', '-d', 'target', '-f', $dump
	],
	'and restores it, without an error');
cmp_ok(fence('target'), '>', $far, 'fences go on growing');

$c = session($node, dbname => 'target', user => 'other');
for my $call ('nextval', 'setval')
{
	my $res = $c->send("SELECT $call('app.tokenlock_fence'"
		  . ($call eq 'setval' ? ', 1)' : ')'))->result;
	is($res->{error} && $res->{error}->code, '42501',
		"$call is for nobody else");
}
$c->quit;

$node->stop;
done_testing();
