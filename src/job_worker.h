/*-------------------------------------------------------------------------
 *
 * job_worker.h
 *	  Workers: the lease that says whether one is alive, and what is known of
 *	  the rows that it may hold.
 *
 * A worker is known by its table and sid.  Which rows it holds is said by the
 * table alone; what is kept here tells whether and where to look for them.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_WORKER_H
#define TOKENLOCK_JOB_WORKER_H

#include "job_key.h"
#include "shmem.h"

#include "utils/timestamp.h"

/* A session that calls for a worker. */
typedef struct TlWorkerSession
{
	int			procno;
	int			pid;			/* 0: none is known */
	Oid			role;
} TlWorkerSession;

/*
 * TlWorker: one worker of one job table.  Made by its first call, or when a
 * row with its sid is found in the table; removed by a sweep some time after
 * it has lapsed.  Covered by the partition lock of the hash table.
 *
 * It is alive while it has an open transaction or its end has not come.
 */
typedef struct TlWorker
{
	TlKey		key;
	Oid			role;			/* that called last; InvalidOid: none yet */
	int			open;			/* open transactions that called for it */
	TlTime		ttl;			/* given last; 0: table_ttl */
	TlTime		table_ttl;		/* when last looked at; 0: tokenlock.job_ttl */
	TlTime		expires;
	TlTime		look_again;		/* when dead: not to be looked for before */
	bool		lapse_noted;	/* this lapse has been seen by a call */
	bool		lapse_unseen;	/* renew_jobs has yet to answer false */
	bool		lapse_unreleased;	/* its rows from before the lapse may be
									 * in nobody's hands */
	bool		inexact;		/* it may have more rows than claimed says */
	int64		claimed;		/* rows that it may hold: never too small,
								 * unless inexact */
	uint64		version;		/* changes with claimed and range */
	TlTime		changed;		/* when rows last left claimed or range */
	TlKeyStamp	stamp;			/* of the range */
	TlRange		range;			/* holds its rows; else unknown */
	TlWorkerSession got;		/* that was handed rows last */
	bool		shared_told;	/* that two sessions share the sid: once in a
								 * lease */
	TimestampTz since;			/* first call; for display */
	TimestampTz renewed_at;		/* last restart; for display */
} TlWorker;

#define tl_worker_may_hold(worker)	((worker)->claimed > 0 || (worker)->inexact)

/* The kinds of calls, as far as the lease is concerned. */
typedef enum TlWorkerCall
{
	TL_CALL_CLAIM,				/* restarts; lapse_unreleased is dealt with */
	TL_CALL_RETURN,				/* finish or release: restarts */
	TL_CALL_RENEW				/* restarts unless a lapse is unseen */
} TlWorkerCall;

/* What a call learns about its worker. */
typedef struct TlWorkerState
{
	bool		fresh;			/* shared memory did not know it */
	bool		live;			/* it was, before this call */
	bool		lapsed;			/* lapse_unseen (renew) or _unreleased (claim) */
	TlTime		expires;
	bool		sooner;			/* than before this call */
	bool		shared_told;
	int64		claimed;
	bool		inexact;
	uint64		version;
	TlKeyStamp	stamp;			/* of the range: see tl_worker_range */
	TlRange		range;
} TlWorkerState;

/* The range, if it is known and of this type; else NULL. */
extern const TlRange *tl_worker_range(const TlWorkerState *state,
									  const TlKeyType *type);

/* Called from _PG_init. */
extern void tl_worker_init(void);

/*
 * A call of the worker: note a lapse, then restart the lease, and with open
 * count the transaction as one that keeps it alive.  To be called before the
 * call's first look at the table.  ttl is 0 when none is given, table_ttl
 * when the table has none.
 */
extern void tl_worker_call(const TlKey *key, TlWorkerCall call, TlTime ttl,
						   TlTime table_ttl, bool open,
						   TlWorkerState *state);

/* Look at a worker; false when there is none. */
extern bool tl_worker_look(const TlKey *key, TlWorkerState *state);

/*
 * The worker is about to hold n more rows of this range.  Runs the key's
 * comparison, so no lock may be held.
 *
 * "pending" of the rows that it holds are given back by this transaction.  If
 * those are all, its range need not hold them any longer: then the answer is
 * true, and *replaced is the range that holds if the transaction aborts.
 */
extern bool tl_worker_raise(const TlKey *key, int64 n, const TlRange *range,
							int64 pending, TlRange *replaced,
							const TlKeyType *type);

/*
 * The worker was counted and has exactly n rows, if nothing has changed since
 * the version was read and no other transaction is open for it than
 * max_open.  Answers whether that was so.
 */
extern bool tl_worker_counted(const TlKey *key, uint64 version, int max_open,
							  int64 n);

/*
 * A row of the worker was seen in the table, by a snapshot taken at the time
 * "seen".  False when the worker has changed since and the row has to be
 * looked at again.  *expires is when the worker's lease ends.
 */
extern bool tl_worker_found(const TlKey *key, const TlPoint *id,
							const TlKeyType *type, TlTime seen,
							TlTime table_ttl, TlTime *expires);

/* For the callbacks at the end of a transaction: these cannot fail. */
extern void tl_worker_lower(const TlKey *key, int64 n);
extern void tl_worker_restore_range(const TlKey *key, const TlRange *range,
									const TlKeyStamp *stamp);

/*
 * n rows were taken from a dead worker, the last of them range->hi, by a look
 * that started at range->lo: the next may start behind.
 */
extern void tl_worker_lower_dead(const TlKey *key, int64 n,
								 const TlRange *range,
								 const TlKeyStamp *stamp);
extern void tl_worker_set_unreleased(const TlKey *key);
extern void tl_worker_close(const TlKey *key, bool committed,
							bool unreleased, bool got_rows);

/*
 * The session that was handed rows of this worker last.  False unless it is
 * another than this one, and still connected.
 */
extern bool tl_worker_other_session(const TlKey *key,
									TlWorkerSession *session);

/* Is this the first time in its lease that the worker is told of that? */
extern bool tl_worker_tell_shared(const TlKey *key);

/*
 * Dead workers of a table that may hold rows, at most max of them.  *next is
 * the earliest time at which there may be others.  Allocates nothing.
 */
extern int	tl_worker_dead(Oid relation, TlKey *keys, int max, TlTime *next);

/* Is the worker (still) dead?  *state is what is known of it then. */
extern bool tl_worker_is_dead(const TlKey *key, TlWorkerState *state);

/* All that can be got of a dead worker was locked by others: let it rest. */
extern void tl_worker_rest(const TlKey *key);

/*
 * Put back a worker that was copied before a restart, if there is room.  Its
 * rows are looked for in all of the table, as nothing is known of that now.
 */
extern void tl_worker_revive(const TlWorker *saved);

/* Call a function with each worker of this database, locked to be read. */
typedef void (*TlWorkerVisitor) (const TlWorker *worker, bool live, void *arg);
extern void tl_worker_visit(TlWorkerVisitor visit, void *arg);

#endif							/* TOKENLOCK_JOB_WORKER_H */
