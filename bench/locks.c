/*
 * bench/locks.c
 *
 * locks KIND CLIENTS SECONDS SERVER
 *
 * Pairs of taking and giving back a lock, per second, by CLIENTS connections
 * of a process each, every one with a lock of its own.  SERVER is a libpq
 * connection string, or the path of Redis' socket.  All kinds by the plain
 * blocking calls of the server's C library over a unix socket, prepared where
 * that exists, so that they differ in the server and the protocol only.
 */
#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#include <libpq-fe.h>

typedef struct Kind
{
	const char *name;
	const char *statements[2];	/* the first alone, if it does both */
} Kind;

/* $1: the lock's number, a text */
static const Kind kinds[] = {
	{"advisory", {
		"SELECT pg_try_advisory_lock($1::bigint), pg_advisory_unlock($1::bigint)"}},
	{"session", {"SELECT token_get($1), token_put($1)"}},
	{"lease", {"SELECT token_get($1, owner => 'w', ttl => '30s'), "
		"token_put($1, owner => 'w')"}},
	{"lease, two statements", {
		"SELECT token_get($1, owner => 'w', ttl => '30s'), true",
		"SELECT true, token_put($1, owner => 'w')"}},
	/* what has lapsed may be taken; only its owner may delete it */
	{"lock table", {
		"INSERT INTO lock_table AS l VALUES ($1, 'w', now() + '30s') "
		"ON CONFLICT (name) DO UPDATE "
		"SET owner = excluded.owner, expires_at = excluded.expires_at "
		"WHERE l.expires_at < now() RETURNING true, true",
		"DELETE FROM lock_table WHERE name = $1 AND owner = 'w' "
		"RETURNING true, true"}},
};

static const char *const delete_if_mine =
	"if redis.call('get', KEYS[1]) == ARGV[1] then "
	"return redis.call('del', KEYS[1]) else return 0 end";

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

/* One round trip that must answer true, true. */
static void
execute(PGconn *conn, const char *name, const char *lock)
{
	PGresult   *res = PQexecPrepared(conn, name, 1, &lock, NULL, NULL, 0);

	if (PQresultStatus(res) != PGRES_TUPLES_OK || PQntuples(res) != 1 ||
		*PQgetvalue(res, 0, 0) == 'f' || *PQgetvalue(res, 0, 1) == 'f')
		errx(1, "not had: %s", PQerrorMessage(conn));
	PQclear(res);
}

/* The same in Redis. */
static void
reply_must_be(redisReply *reply, int type)
{
	if (reply == NULL || reply->type != type ||
		(type == REDIS_REPLY_INTEGER && reply->integer != 1))
		errx(1, "not had: %s", reply && reply->str ? reply->str : "?");
	freeReplyObject(reply);
}

/*
 * Pairs per second from the start, or from when the connection stands, to the
 * end.
 */
static double
redis_pairs(const char *path, const char *lock, double start, double end)
{
	redisContext *redis = redisConnectUnix(path);
	redisReply *reply;
	char		sha[41];
	long		pairs = 0;
	double		time;

	if (redis == NULL || redis->err)
		errx(1, "could not connect to %s", path);
	reply = redisCommand(redis, "SCRIPT LOAD %s", delete_if_mine);
	if (reply == NULL || reply->type != REDIS_REPLY_STRING)
		errx(1, "could not load the script");
	snprintf(sha, sizeof(sha), "%s", reply->str);
	freeReplyObject(reply);

	start = fmax(start, now());
	while ((time = now()) < end)
	{
		reply_must_be(redisCommand(redis, "SET %s w NX PX 30000", lock),
					  REDIS_REPLY_STATUS);
		reply_must_be(redisCommand(redis, "EVALSHA %s 1 %s w", sha, lock),
					  REDIS_REPLY_INTEGER);
		pairs += time >= start;
	}
	return (double) pairs / (time - start);
}

static double
postgres_pairs(const char *server, const Kind *kind, const char *lock,
			   double start, double end)
{
	PGconn	   *conn = PQconnectdb(server);
	long		pairs = 0;
	double		time;

	if (PQstatus(conn) != CONNECTION_OK)
		errx(1, "%s", PQerrorMessage(conn));
	for (int i = 0; i < 2 && kind->statements[i]; i++)
	{
		static const Oid text = 25;
		PGresult   *res = PQprepare(conn, i ? "b" : "a",
									kind->statements[i], 1, &text);

		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			errx(1, "%s", PQerrorMessage(conn));
		PQclear(res);
	}
	start = fmax(start, now());
	while ((time = now()) < end)
	{
		execute(conn, "a", lock);
		if (kind->statements[1])
			execute(conn, "b", lock);
		pairs += time >= start;
	}
	return (double) pairs / (time - start);
}

int
main(int argc, char **argv)
{
	const Kind *kind = NULL;
	int			clients;
	double		seconds,
				start;
	double	   *rates,
				all = 0;

	if (argc != 5)
		errx(2, "usage: locks KIND CLIENTS SECONDS SERVER");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strcmp(argv[1], kinds[i].name) == 0)
			kind = &kinds[i];
	if (kind == NULL && strncmp(argv[1], "redis", 5) != 0)
		errx(2, "no such kind: %s", argv[1]);
	clients = atoi(argv[2]);
	seconds = atof(argv[3]);

	rates = mmap(NULL, sizeof(double) * (size_t) clients,
				 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (rates == MAP_FAILED)
		err(1, "mmap");
	start = now() + 0.3;		/* most have connected by then */
	for (int i = 0; i < clients; i++)
	{
		char		lock[16];
		pid_t		pid = fork();

		if (pid < 0)
			err(1, "fork");
		if (pid > 0)
			continue;
		snprintf(lock, sizeof(lock), "%d", 1000 + i);
		rates[i] = kind ?
			postgres_pairs(argv[4], kind, lock, start, start + seconds) :
			redis_pairs(argv[4], lock, start, start + seconds);
		_exit(0);
	}
	for (int i = 0; i < clients; i++)
	{
		int			status;

		if (wait(&status) < 0 || status != 0)
			errx(1, "a client has failed");
	}
	for (int i = 0; i < clients; i++)
		all += rates[i];
	printf("%.1f\n", all);
	return 0;
}
