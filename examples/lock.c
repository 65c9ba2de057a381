/*
 * A lock that outlives its connection, for you to copy from:
 *
 *     cc -o lock lock.c -I "$(pg_config --includedir)" \
 *         -L "$(pg_config --libdir)" -lpq -pthread
 *
 * It is a lease of a named owner: it needs no connection while it is held, and
 * a pooler may stand in between.  A heartbeat renews it, and comes to know
 * when it is lost; what is written to the database is guarded, so that nothing
 * is committed by a holder that comes too late.
 *
 * Here the holder writes a line into the table "ledger" again and again.
 * PGHOST, PGDATABASE etc. say where the database is.  Arguments: the lock; the
 * owner, a name unlike any other process's; and after how many seconds a
 * silent holder is dead.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *name;
static const char *owner;
static const char *ttl;
static volatile sig_atomic_t stopping;

/* The grant that we have: there is one at a time. */
static struct
{
	char		fence[24];
	atomic_bool	lost;			/* others may have the lock */
	_Atomic double mine_until;
	int			over[2];		/* a pipe, closed to end the heartbeat */
	pthread_t	heartbeat;
}			grant;

typedef enum
{
	DONE, LOST, BROKEN
}			Outcome;

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

static PGconn *
connect_as(const char *purpose)
{
	char		app[128];
	const char *keys[] = {"dbname", "application_name", NULL};
	const char *values[] = {"", app, NULL};

	snprintf(app, sizeof app, "%s%s", owner, purpose);
	return PQconnectdbParams(keys, values, 1);
}

/*
 * Run a statement.  A guard that fails, at once or at commit, means that the
 * lock is lost.  A connection that fails, a cancel or a lack of resources does
 * not.  Any other error is the end: it will be no better the next time.  The first value of the first
 * row goes to answer, if there is one.
 */
static Outcome
run(PGconn *conn, const char *sql, int n, const char *const *values,
	char *answer, size_t size)
{
	PGresult   *res = PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0);
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	Outcome		outcome = DONE;

	if (answer != NULL)
		snprintf(answer, size, "%s",
				 PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
	if (PQstatus(conn) != CONNECTION_OK ||
		(state != NULL && (strncmp(state, "53", 2) == 0 ||
						   strncmp(state, "57", 2) == 0)))
		outcome = BROKEN;
	else if (state != NULL &&
			 (strcmp(state, "55000") == 0 || strcmp(state, "40001") == 0))
		outcome = LOST;
	else if (state != NULL)
	{
		fprintf(stderr, "%s", PQerrorMessage(conn));
		exit(1);
	}
	if (outcome != DONE)
		fprintf(stderr, "%s: %s", outcome == LOST ? "lost" : "trying again",
				PQerrorMessage(conn));
	PQclear(res);
	return outcome;
}

/* token_put and its kin; the fence says which grant. */
static Outcome
call(PGconn *conn, const char *function, char *answer, size_t size)
{
	const char *values[] = {name, owner, grant.fence};
	char		sql[100];

	snprintf(sql, sizeof sql, "SELECT %s($1, owner => $2, fence => $3)",
			 function);
	return run(conn, sql, 3, values, answer, size);
}

static Outcome
renew(PGconn *conn)
{
	double		sent = now();
	char		answer[24];
	Outcome		outcome = call(conn, "token_renew", answer, sizeof answer);

	if (outcome == DONE && answer[0] == 't')
		grant.mine_until = sent + atof(ttl) * 0.999;
	else if (outcome == DONE)
		grant.lost = true;
	return outcome;
}

/* From a connection of its own, while the other one works or waits. */
static void *
heartbeat(void *arg)
{
	PGconn	   *conn = NULL;
	struct pollfd over = {.fd = grant.over[0]};

	(void) arg;
	while (!grant.lost && poll(&over, 1, atof(ttl) * 1000 / 3) == 0)
	{
		if (conn == NULL)
			conn = connect_as(" heartbeat");
		if (renew(conn) == BROKEN)
		{
			PQfinish(conn);
			conn = NULL;
		}
	}
	PQfinish(conn);
	return NULL;
}

/* Wait in line for two seconds.  The place is kept for the next try. */
static bool
take(PGconn *conn)
{
	const char *values[] = {name, owner, ttl};

	if (run(conn, "SELECT fence FROM token_request($1, owner => $2,"
			" wait => '2 s', ttl => $3 * interval '1 s',"
			" keep_place => '10 s')",
			3, values, grant.fence, sizeof grant.fence) != DONE ||
		grant.fence[0] == '\0')
		return false;
	/* The grant came at some time while we waited: count from now. */
	grant.lost = false;
	grant.mine_until = 0;
	if (renew(conn) != DONE || pipe2(grant.over, O_CLOEXEC) != 0)
		return false;
	if (pthread_create(&grant.heartbeat, NULL, heartbeat, NULL) != 0)
		exit(1);
	return true;
}

/* To be asked before each step of work, above all if it has no guard. */
static bool
is_mine(void)
{
	return !grant.lost && now() < grant.mine_until;
}

static void
end_grant(void)
{
	close(grant.over[1]);
	pthread_join(grant.heartbeat, NULL);
	close(grant.over[0]);
}

/* This transaction is committed only while the lock is ours. */
static Outcome
write_line(PGconn *conn)
{
	const char *values[] = {grant.fence, owner};
	Outcome		outcome;

	if (!is_mine())
	{
		fprintf(stderr, "lost: its time is over\n");
		return LOST;
	}
	if ((outcome = run(conn, "BEGIN", 0, NULL, NULL, 0)) == DONE &&
		(outcome = call(conn, "token_guard", NULL, 0)) == DONE &&
		(outcome = run(conn, "INSERT INTO ledger (fence, owner)"
					   " VALUES ($1, $2)", 2, values, NULL, 0)) == DONE &&
		(outcome = run(conn, "COMMIT", 0, NULL, NULL, 0)) == DONE)
		return DONE;
	if (PQtransactionStatus(conn) == PQTRANS_INERROR)
		run(conn, "ROLLBACK", 0, NULL, NULL, 0);
	return outcome;
}

int
main(int argc, char **argv)
{
	PGconn	   *conn = NULL;
	bool		held = false;

	if (argc != 4)
	{
		fprintf(stderr, "usage: lock NAME OWNER TTL\n");
		return 2;
	}
	name = argv[1];
	owner = argv[2];
	ttl = argv[3];
	signal(SIGTERM, stop);

	while (held || !stopping)
	{
		Outcome		outcome = DONE;
		char		answer[24];

		if (conn == NULL || PQstatus(conn) != CONNECTION_OK)
		{
			if (stopping && !is_mine())
				break;
			PQfinish(conn);		/* but the lock is still there */
			conn = connect_as("");
			if (PQstatus(conn) != CONNECTION_OK)
			{
				fprintf(stderr, "trying again: %s", PQerrorMessage(conn));
				usleep(100 * 1000);
			}
		}
		else if (!held)
		{
			held = take(conn);
			if (held)
				fprintf(stderr, "taken, fence %s\n", grant.fence);
		}
		else if (!stopping)
		{
			outcome = write_line(conn);
			usleep(20 * 1000);
		}
		else if (call(conn, "token_put", answer, sizeof answer) == DONE)
		{
			fprintf(stderr, answer[0] == 't' ? "put\n" :
					"lost: it was not ours any more\n");
			outcome = LOST;
		}
		if (outcome == LOST)
		{
			end_grant();
			held = false;
		}
	}
	PQfinish(conn);
	return 0;
}
