# A synchronous standby: a long lease is answered when that has its record, as
# a commit is; a short one does not wait.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TokenlockTest;

my $two = new_server(
	'primary',
	init => { allows_streaming => 1 },
	conf => "fsync = on\ntokenlock.grace = '5s'\n");
$two->backup('b');
my $three = PostgreSQL::Test::Cluster->new('standby');
$three->init_from_backup($two, 'b', has_streaming => 1);
$three->start;
my $R = session($two);
$two->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$two->reload;
ok( until_true(
		sub {
			$R->one("SELECT count(*) FROM pg_stat_replication
				WHERE sync_state = 'sync'") == 1;
		}),
	'a synchronous standby');
answers($R, "token_get('sync', owner => 'n1', ttl => '10min')", 't');
my $long = $R->one("SELECT token_fence('sync', owner => 'n1')");
answers($R, "token_get('s', owner => 'n1', ttl => '1s')", 't');
$three->stop;
answers($R, "token_get('s', wait => '1min', owner => 'n2', ttl => '900ms')", 't',
	'a short lease does not wait for the standby');
my $W = session($two);
$W->send("SELECT token_get('sync2', owner => 'n1', ttl => '10min')");
ok( until_true(
		sub {
			($R->one('SELECT wait_event FROM pg_stat_activity WHERE pid = '
				  . $W->pid) // '') eq 'SyncRep';
		}),
	'a long one does');
answers($R, "token_get('sync2')", 'f', 'and is nobody else\'s meanwhile');
$R->send("SELECT token_get('sync2', owner => 'n1', ttl => '9min')");
$three->start;
is($W->result->{rows}[0][0], 't', 'it is answered when the standby is back');
is($R->result->{rows}[0][0], 't', 'also to another session of its owner');
$two->stop('immediate');
$three->promote;
my $B = session($three);
answers($B, "token_fence('sync', owner => 'n1')", $long, 'and is there');
isnt($B->one("SELECT token_fence('sync2', owner => 'n1')"), undef,
	'both of them');
$three->stop('immediate');
done_testing();
