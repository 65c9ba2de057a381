# Named owners, places and claims behind PgBouncer in transaction mode: the
# connection to the server changes under the client from call to call, or
# several clients have one and the same.  And what does not work there.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use ClientTest;
use PgClient;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $pgbouncer = $ENV{PGBOUNCER} // '/usr/sbin/pgbouncer';
if (!-x $pgbouncer)
{
	die "needs PgBouncer, as in Debian's package pgbouncer"
	  if $ENV{TOKENLOCK_TEST_CLIENTS};
	plan skip_all => "needs PgBouncer, as in Debian's package pgbouncer";
}

my ($node) = client_server('pooled');
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();

# The database twice: with two connections to the server, and with one.
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql(
	'app', "CREATE EXTENSION tokenlock;
	ALTER DATABASE app SET tokenlock.session_tokens = off;
	CREATE TABLE jobs (id bigint PRIMARY KEY, status text DEFAULT '0', sid text);
	INSERT INTO jobs SELECT generate_series(1, 40)");
my $app = session($node, dbname => 'app');
my $server = "host=$ENV{PGHOST} port=$ENV{PGPORT} dbname=app";
append_to_file("$folder/users", qq("$ENV{PGUSER}" ""\n));
append_to_file(
	"$folder/pgbouncer.ini", "[databases]
two = $server pool_size=2
one = $server pool_size=1
[pgbouncer]
pool_mode = transaction
listen_port = $port
unix_socket_dir = $folder
auth_type = trust
auth_file = $folder/users
");
my $pooler = start('pgbouncer', $pgbouncer, "$folder/pgbouncer.ini");
END { kill TERM => $pooler->{pid} if $pooler }
until_true(sub { -S "$folder/.s.PGSQL.$port" }, 20)
  or die 'PgBouncer does not start: ' . printed($pooler, 'err');

sub client
{
	my ($pool) = @_;
	return PgClient->new(
		host => $folder,
		port => $port,
		dbname => $pool,
		user => $ENV{PGUSER});
}

# Two clients keep the two connections busy.  To have a call go by one of them,
# its keeper lets go of it for so long.
my @keepers = map { client('two') } 1 .. 2;
my @servers = map { keep($_) } @keepers;

sub keep
{
	my ($keeper) = @_;
	$keeper->query('BEGIN');
	return $keeper->one('SELECT pg_backend_pid()');
}

# What a call by the one connection or the other answers: rows as lines.
sub by
{
	my ($number, $client, $sql) = @_;
	my $keeper = $keepers[$number];

	$keeper->query('COMMIT');
	my $res = $client->send($sql)->result;
	my $pid = keep($keeper);
	$pid == $servers[$number] or die 'the connections are mixed up';
	return 'ERROR ' . $res->{error}->code if $res->{error};
	return join "\n", map { join '|', map { $_ // '' } @{$_} } @{ $res->{rows} };
}

# Lets go of both for a while; which is the first then, and which the second,
# does not matter.
sub by_any
{
	my ($code) = @_;

	$_->query('COMMIT') for @keepers;
	$code->();
	@servers = map { keep($_) } @keepers;
	return;
}

# One test: the same answer by the first connection, then by the second.
sub by_both
{
	my ($client, $sql, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(by($_, $client, $sql), $expected, "$sql, connection $_") for 0, 1;
	return;
}

isnt($servers[0], $servers[1], 'two connections to the server');
my ($A, $B, $C) = map { client('two') } 1 .. 3;

subtest 'owners' => sub {
	is(by(0, $A, q(SELECT token_get('k', owner => 'a', ttl => '1 h'))),
		't', 'taken by one connection');
	by_both($A, q(SELECT token_get('k', owner => 'a')), 't');
	by_both($A, q(SELECT token_renew('k', owner => 'a')), 't');
	by_both($B, q(SELECT token_get('k', owner => 'b')), 'f');
	by_both($B, q(SELECT token_put('k', owner => 'b')), 'f');
	is( by(0, $A, q(SELECT token_fence('k', owner => 'a'))),
		by(1, $A, q(SELECT token_fence('k', owner => 'a'))),
		'the fence is the same');

	my $fence = by(0, $A, q(SELECT token_fence('k', owner => 'a')));
	is( by(1, $A, "BEGIN; SELECT token_guard('k', owner => 'a',
			fence => $fence) = $fence; COMMIT"),
		't',
		'guarded by the other');

	is(by(0, $B, q(SELECT token_get('k', owner => 'b', wait => '20 ms'))),
		'f', 'a wait in vain');
	is(by(1, $A, q(SELECT token_put('k', owner => 'a'))),
		't', 'put by the other');
	by_both($B, q(SELECT token_get('k', owner => 'b')), 't');
	is(by(0, $B, q(SELECT token_put_all(owner => 'b'))), 1, 'all put');
};

subtest 'a wait' => sub {
	is(by(0, $A, q(SELECT token_get('k', owner => 'a', ttl => '1 h'))),
		't', 'taken');
	by_any(
		sub {
			$B->send(q(SELECT token_get('k', owner => 'b', wait => '1 min')));
			ok( until_true(
					sub { $app->one('SELECT count(*) FROM token_waiters') }),
				'another waits');
			is($A->one(q(SELECT token_put('k', owner => 'a'))),
				't', 'put by the other connection');
			is($B->result->{rows}[0][0], 't', 'it goes on');
		});
	is(by(1, $B, q(SELECT token_put('k', owner => 'b'))), 't', 'put');
};

subtest 'places in line' => sub {
	my $ask = sub {
		my ($number, $client, $owner) = @_;
		return by($number, $client, "SELECT answer, place
			FROM token_request('k', owner => '$owner', ttl => '1 h',
			keep_place => '1 min')");
	};

	is($ask->(0, $A, 'a'), 'new|', 'taken');
	is($ask->(0, $B, 'b'), 'queued|1', 'first in line');
	is($ask->(1, $C, 'c'), 'queued|2', 'second in line');
	is($ask->(1, $B, 'b'), 'queued|1', 'asks again by the other');
	is(by(1, $A, q(SELECT token_put('k', owner => 'a'))), 't', 'put');
	is($ask->(0, $C, 'c'), 'queued|2', 'the second does not overtake');
	is($ask->(1, $A, 'a'), 'queued|3', 'nor does the former holder');
	is($ask->(0, $B, 'b'), 'new|', 'the first has its turn');
	is(by(1, $B, q(SELECT token_put('k', owner => 'b'))), 't', 'put');
	is($ask->(1, $C, 'c'), 'new|', 'now the second');
	is(by(0, $C, q(SELECT token_put('k', owner => 'c'))), 't', 'put');
	is($ask->(0, $A, 'a'), 'new|', 'and the third');
};

subtest 'the server ends all connections' => sub {
	my $ask = "SELECT answer, place FROM token_request('k', owner => 'b',
		keep_place => '1 min')";

	is(by(0, $B, $ask), 'queued|1', 'a place');
	by_any(
		sub {
			$app->query("SELECT pg_terminate_backend($_)") for @servers;
			ok(until_gone($app, @servers), 'they are gone');
		});
	by_both($A, q(SELECT token_renew('k', owner => 'a')), 't');
	by_both($B, $ask, 'queued|1');
	is(by(1, $A, q(SELECT token_put('k', owner => 'a'))), 't', 'put');
	is(by(0, $B, $ask), 'new|', 'the place was kept');
	is(by(1, $B, q(SELECT token_put('k', owner => 'b'))), 't', 'put');
	like(by(0, $A, q(CALL token_acquire('k', owner => 'a'))),
		qr/^t\|/, 'acquired without a snapshot');
	is(by(1, $A, q(SELECT token_put('k', owner => 'a'))), 't', 'put');
};

subtest 'a transaction' => sub {
	by_any(
		sub {
			$A->query('BEGIN');
			is($A->one(q(SELECT token_get('t', scope => 'transaction'))),
				't', 'taken');
			is($B->one(q(SELECT token_get('t', owner => 'b'))),
				'f', 'is taken');
			$A->query('COMMIT');
		});
	by_both($B, q(SELECT token_get('t', owner => 'b')), 't');
};

# What one who does not know of the pooler does.
subtest 'a session' => sub {
	by_both($A, q(SELECT token_get('s')), 'ERROR 55000');
	by_both($A, q(SELECT token_get_all('{s}')), 'ERROR 55000');

	is( by(0, $A, q(SET tokenlock.session_tokens = on; SELECT token_get('s'))),
		't', 'where it is not switched off');
	is(by(1, $A, q(SELECT token_put('s'))), 'f', 'cannot put it');
	is(by(0, $B, q(SELECT token_put('s'))), 't', 'and others can');
	by(0, $A, 'RESET tokenlock.session_tokens');
};

subtest 'claims' => sub {
	my $claim = sub {
		my ($number, $client, $sid, $more) = @_;
		return by($number, $client, "SELECT id
			FROM claim_jobs(NULL::jobs, '$sid', 3$more)") =~ s/\n/ /gr;
	};

	is($claim->(0, $A, 'a', ''), '1 2 3', 'jobs');
	is($claim->(1, $A, 'a', ''), '1 2 3', 'the same, by the other');
	is($claim->(0, $B, 'b', ''), '4 5 6', "another worker's");
	by_both($A, q(SELECT renew_jobs('jobs', 'a')), 't');
	is($claim->(1, $A, 'a', ', done => ARRAY[1, 2, 3]'), '7 8 9', 'done');
	is($claim->(0, $A, 'a', ', done => ARRAY[7, 8, 9], resume => false'),
		'10 11 12', 'done');
	is(by(1, $B, q(SELECT finish_jobs('jobs', 'b', ARRAY[4, 5, 6, 10]))),
		3, 'finished');
	is(by(0, $A, q(SELECT release_jobs('jobs', 'a'))), 3, 'given back');
	is(join(' ', map { $_->notices } $A, $B), '', 'nobody is warned');

	# two workers by turns, each by this connection and then by that
	my (%times, %done);
	for my $round (0 .. 39)
	{
		my $worker = $round % 4 < 2 ? 'a' : 'b';
		my $done = join ', ', split / /, $done{$worker} // '';

		$done{$worker} = $claim->(
			$round % 2, $worker eq 'a' ? $A : $B,
			$worker, ", done => ARRAY[$done]::bigint[]");
		$times{$_}++ for split / /, $done{$worker};
	}
	is( join(' ', map { "$_:$times{$_}" } sort { $a <=> $b } keys %times),
		join(' ', map { "$_:1" } 10 .. 40),
		'each job was handed out once');
	is($app->one(q(SELECT count(*) FROM jobs WHERE status = '1')),
		40, 'and is done');

	by(0, $A, q(SELECT job_table_set('jobs', wake => true)));
	by_any(
		sub {
			$A->send(q(CALL wait_jobs('jobs', '1 min')));
			ok( until_true(
					sub {
						$app->one("SELECT waiting FROM job_tables
							WHERE job_table = 'jobs'::regclass");
					}),
				'one waits for jobs');
			$B->query('INSERT INTO jobs VALUES (50)');
			is($A->result->{rows}[0][0], 't', 'and there is one');
		});
	is($claim->(1, $A, 'a', ''), '50', 'claimed by the other');
};

# Two clients and one connection to the server.
subtest 'one connection' => sub {
	my ($one, $other) = map { client('one') } 1 .. 2;
	my $pid = $one->one('SELECT pg_backend_pid()');

	is($other->one('SELECT pg_backend_pid()'), $pid, 'is one');
	is($one->one(q(SELECT token_get('o', owner => 'a', ttl => '1 h'))),
		't', 'taken by one owner');
	is($other->one(q(SELECT token_get('o', owner => 'b'))),
		'f', 'is taken for the other');
	is($other->one(q(SELECT token_put('o', owner => 'b'))),
		'f', 'who cannot put it');

	# A wait keeps the connection from who could end it.
	$other->send(q(SELECT token_get('o', owner => 'b', wait => '200 ms')));
	until_true(sub { $app->one('SELECT count(*) FROM token_waiters') });
	$one->send(q(SELECT token_put('o', owner => 'a')));
	is($other->result->{rows}[0][0], 'f', 'a wait is in vain');
	is($one->result->{rows}[0][0], 't', 'and the put has to wait for it');

	is($one->one(q(SELECT token_get('o', owner => 'a', ttl => '1 h'))),
		't', 'taken');
	is($other->one(q(SELECT answer FROM token_request('o', owner => 'b',
		keep_place => '1 min'))), 'queued', 'a place waits without it');
	is($one->one(q(SELECT token_put('o', owner => 'a'))), 't', 'put');
	is($one->one(q(SELECT token_get('o', owner => 'a'))),
		'f', 'the place is kept');
	is($other->one(q(SELECT token_get('o', owner => 'b'))), 't', 'for this one');

	$app->query('INSERT INTO jobs SELECT generate_series(61, 66)');
	my $ids = sub {
		my ($client, $sid) = @_;
		return join ' ', map { $_->[0] } $client->rows(
			"SELECT id FROM claim_jobs(NULL::jobs, '$sid', 3)");
	};
	is($ids->($one, 'c'), '61 62 63', 'jobs of one');
	is($ids->($other, 'd'), '64 65 66', 'and of another');
	is($ids->($one, 'c'), '61 62 63', 'the same again');
};

$_->quit for @keepers;
$node->stop;
done_testing();
