# bench/jobs-wake.pl DIRECTORY PORT DATABASE
#
# Milliseconds from sending an insert to the return of the claim of a worker
# that waits for it: by claim_jobs(wait => ..), and by LISTEN.  The two take
# turns.  Prints each, for note_all of bench/common.

use strict;
use warnings FATAL => 'all';

use IO::Select;
use PgClient;
use Time::HiRes qw(sleep time);

my ($host, $port, $dbname) = @ARGV;
my $tries = $ENV{TRIES} || 300;
my ($producer, $waiter, $listener) =
  map { PgClient->new(host => $host, port => $port, dbname => $dbname) } 1 .. 3;

# One that waits, and has nothing left to finish.
sub by_waiting
{
	$waiter->query("SELECT finish_jobs('job_wake', 'bench', array_agg(id))
		FROM job_wake WHERE sid = 'bench' AND status = '2' HAVING count(*) > 0");
	$waiter->send("SELECT id FROM claim_jobs(NULL::job_wake, 'bench',
		wait => '10 s')");
	sleep 0.005;
	my $start = time;
	$producer->send("INSERT INTO job_wake (content) VALUES ('a job')");
	$waiter->answer;
	$producer->answer;
	return $waiter->{result}{at} - $start;
}

sub by_listening
{
	$listener->query("SELECT finish_jobs('job_notify', 'bench', array_agg(id))
		FROM job_notify WHERE sid = 'bench' AND status = '2'
		HAVING count(*) > 0");
	sleep 0.005;
	my $start = time;
	$producer->send("INSERT INTO job_notify (content) VALUES ('a job')");
	IO::Select->new($listener->{sock})->can_read(10) or die 'not notified';
	$listener->send("SELECT id FROM claim_jobs(NULL::job_notify, 'bench')");
	$listener->answer;
	$producer->answer;
	return $listener->{result}{at} - $start;
}

$producer->query('TRUNCATE job_wake, job_notify');
$listener->query('LISTEN job_notify');
for my $commit ('on', 'off')
{
	$_->query("SET synchronous_commit = $commit")
	  for $producer, $waiter, $listener;
	for my $try (1 .. $tries)
	{
		my %took = (
			'claim_jobs(wait => ..)' => by_waiting(),
			'LISTEN' => by_listening());

		printf "from an insert to the claim, synchronous_commit %s\t%s\t%d\t%.4f\n",
		  $commit, $_, $try, 1000 * $took{$_}
		  for sort keys %took;
	}
}
