/*
 * A worker that does the jobs of a table, for you to copy from:
 *
 *     cc -o worker worker.c -I "$(pg_config --includedir)" \
 *         -L "$(pg_config --libdir)" -lpq -pthread
 *
 * The table is as tokenlock has it by default: an id, status, sid; here it is
 * "jobs" and has a column "task" as well.  Put your own work in the place of
 * work().  PGHOST, PGDATABASE etc. say where the database is.  Arguments: the
 * sid, a name unlike any other worker's, and after how many seconds a silent
 * worker is dead.
 *
 * Each job is done by one live worker.  Only what a worker was doing when it
 * died, or stood still for longer than its ttl, is done again by another.
 */

#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH "10"

static const char *sid;
static const char *ttl;
static volatile sig_atomic_t stopping;
static atomic_bool lapsed;		/* others may have our jobs */
static _Atomic double mine_until;	/* unless the lease is renewed */

/* The ids of the jobs that are done, each with a comma behind it. */
static char done[10 * 24];
static int	n_done;

/* Your work.  False means that the job has failed. */
static bool
work(const char *id, const char *task)
{
	if (strcmp(task, "fail") == 0)
		return false;
	usleep(20 * 1000);
	puts(id);
	fflush(stdout);
	return true;
}

static void
stop(int signo)
{
	(void) signo;
	stopping = 1;
}

/* Seconds that go on in suspend, as they do for the server's leases. */
static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* May it go better the next time? */
static bool
is_passing(PGconn *conn, const PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	return PQstatus(conn) != CONNECTION_OK ||
		(state != NULL && (strncmp(state, "40", 2) == 0 ||
						   strncmp(state, "53", 2) == 0 ||
						   strncmp(state, "57", 2) == 0));
}

/*
 * Run a statement, on a connection that is made when needed, and made anew
 * when it is lost.  NULL when it may go better the next time, after saying
 * why; any other error is the end.
 */
static PGresult *
run(PGconn **conn, const char *purpose, const char *sql, int n,
	const char *const *values)
{
	char		app[128];
	const char *keys[] = {"dbname", "application_name", NULL};
	const char *settings[] = {"", app, NULL};
	PGresult   *res;

	snprintf(app, sizeof app, "%s%s", sid, purpose);
	if (*conn == NULL)
		*conn = PQconnectdbParams(keys, settings, 1);
	res = PQexecParams(*conn, sql, n, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		return res;
	fprintf(stderr, "%s: %s: %s", sid, *purpose ? "no heartbeat" :
			"trying again", PQerrorMessage(*conn));
	if (!is_passing(*conn, res))
		exit(1);
	PQclear(res);
	PQfinish(*conn);
	*conn = NULL;
	return NULL;
}

static const char *
done_ids(void)
{
	static char ids[sizeof done + 2];

	snprintf(ids, sizeof ids, "{%s", done);
	if (n_done > 0)
		ids[strlen(ids) - 1] = '\0';
	return strcat(ids, "}");
}

/*
 * Finish what is done and get the next jobs, in one round trip.  It waits for
 * jobs, but not for long: we might be told to stop.
 */
static PGresult *
claim(PGconn **conn)
{
	const char *values[] = {sid, done_ids(), ttl};
	double		sent = now();
	PGresult   *jobs = run(conn, "", "SELECT id, task FROM claim_jobs("
						   "NULL::jobs, $1, " BATCH ", done => $2::bigint[],"
						   " wait => '2 s', ttl => $3 * interval '1 s')", 3,
						   values);

	if (jobs != NULL)
		mine_until = sent + atof(ttl);
	return jobs;
}

/* finish_jobs and its kin: they answer how many they were. */
static char *
call(PGconn **conn, const char *sql, int n, char *answer)
{
	const char *values[] = {sid, done_ids()};
	PGresult   *res = run(conn, "", sql, n, values);

	if (res == NULL)
		return NULL;
	snprintf(answer, 24, "%s", PQgetvalue(res, 0, 0));
	PQclear(res);
	return answer;
}

static bool
is_mine(void)
{
	if (now() >= mine_until)
		lapsed = true;
	return !lapsed;
}

/* Renew the lease, from a connection of its own, while we work. */
static void *
heartbeat(void *arg)
{
	PGconn	   *conn = NULL;

	(void) arg;
	for (;;)
	{
		double		sent;
		PGresult   *res;

		usleep(atof(ttl) * 1e6 / 3);
		sent = now();
		res = run(&conn, " heartbeat", "SELECT renew_jobs('jobs', $1)", 1,
				  &sid);
		if (res == NULL)
			continue;
		if (PQgetvalue(res, 0, 0)[0] != 't')
			lapsed = true;
		else if (sent + atof(ttl) > mine_until)
			mine_until = sent + atof(ttl);
		PQclear(res);
	}
	return NULL;
}

static bool
try_work(PGconn **conn, const char *id, const char *task)
{
	const char *values[] = {sid, id, "this one never works"};

	if (work(id, task))
		return true;
	fprintf(stderr, "%s: job %s has failed\n", sid, id);
	PQclear(run(conn, "", "SELECT fail_jobs('jobs', $1, ARRAY[$2::bigint],"
				" error => $3)", 3, values));
	return false;
}

/* Give back what was not begun, so that others need not wait. */
static bool
stopped(PGconn **conn)
{
	char		finished[24];
	char		released[24];

	if (!call(conn, "SELECT finish_jobs('jobs', $1, $2::bigint[])", 2,
			  finished) ||
		!call(conn, "SELECT release_jobs('jobs', $1)", 1, released))
		return false;
	fprintf(stderr, "%s: stopped: %s finished, %s given back\n", sid, finished,
			released);
	return true;
}

/* The lease has lapsed: which of our jobs were still ours? */
static bool
finished_late(PGconn **conn)
{
	char		finished[24];

	if (!call(conn, "SELECT finish_jobs('jobs', $1, $2::bigint[])", 2,
			  finished))
		return false;
	lapsed = false;
	fprintf(stderr, "%s: too slow: %s of %d jobs done were still mine\n", sid,
			finished, n_done);
	n_done = 0;
	done[0] = '\0';
	return true;
}

/* Claim jobs and do them; false when that may go better the next time. */
static bool
claimed_and_done(PGconn **conn)
{
	PGresult   *jobs = claim(conn);

	/*
	 * What was done is sent again until the answer arrives; what the answer
	 * brought then comes again, too.
	 */
	if (jobs == NULL)
		return false;
	n_done = 0;
	done[0] = '\0';
	for (int i = 0; i < PQntuples(jobs) && !stopping && is_mine(); i++)
	{
		const char *id = PQgetvalue(jobs, i, 0);

		if (try_work(conn, id, PQgetvalue(jobs, i, 1)))
		{
			strcat(strcat(done, id), ",");
			n_done++;
		}
	}
	PQclear(jobs);
	return true;
}

int
main(int argc, char **argv)
{
	PGconn	   *conn = NULL;
	pthread_t	thread;
	int			pause = 100;

	if (argc != 3)
	{
		fprintf(stderr, "usage: worker SID TTL\n");
		return 2;
	}
	sid = argv[1];
	ttl = argv[2];
	signal(SIGTERM, stop);
	if (pthread_create(&thread, NULL, heartbeat, NULL) != 0)
		return 1;

	for (;;)
	{
		bool		ending = stopping;

		if (ending ? stopped(&conn) : lapsed ? finished_late(&conn) :
			claimed_and_done(&conn))
		{
			if (ending)
				break;
			pause = 100;
			continue;
		}
		if (ending && !is_mine())
			break;				/* others have our jobs by now */
		usleep(pause * 1000);
		pause = pause < 2500 ? pause * 2 : 5000;
	}
	PQfinish(conn);
	return 0;
}
