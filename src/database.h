/*-------------------------------------------------------------------------
 *
 * database.h
 *	  What is shared by the sessions of one database: fence numbers, totals.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_DATABASE_H
#define TOKENLOCK_DATABASE_H

#include "port/atomics.h"
#include "shmem.h"
#include "stats.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

/* What is known of the leases that were given before the server's start. */
typedef enum TlDatabaseState
{
	TL_DATABASE_UNKNOWN,		/* nobody has looked yet */
	TL_DATABASE_GRACE,			/* some may still run: nothing is granted */
	TL_DATABASE_OPEN
} TlDatabaseState;

/*
 * TlDatabase: made by the first session of a database that needs it, and
 * removed only when the database is dropped, so that a session may keep a
 * pointer to it.
 *
 * Fences are drawn by adding to next_fence, which may run past fence_limit:
 * what is not below the limit is not given out.  Both only ever grow, and are
 * raised under the spinlock, next_fence before fence_limit.
 *
 * state, grace_until and what is promised are written by one session at a
 * time, which has a lock on the sequence tokenlock_lease (recover.c,
 * promise.c), and restored by the postmaster before anybody else runs;
 * grace_until before the state.
 *
 * The totals are those of sessions that have ended; live ones count in slots
 * of their own (stats.c).
 */
typedef struct TlDatabase
{
	TlKey		key;
	slock_t		mutex;
	pg_atomic_uint64 next_fence;	/* the next number to give out */
	pg_atomic_uint64 fence_limit;	/* the first not reserved; 0: unknown */
	pg_atomic_uint32 state;		/* TlDatabaseState */
	bool		restored;		/* its leases came over a clean stop */
	TlTime		grace_until;	/* nothing is granted before; 0: no grace */
	pg_atomic_uint64 promised;	/* longest ttl that may be given, us */
	pg_atomic_uint64 promised_until;	/* and when, at the latest (TlTime) */
	ConditionVariable record_written;	/* a holder's "writing" was cleared */
	dsa_pointer slots;			/* TlSlots, record.c; set once */
	pg_atomic_uint64 totals[TL_EVENT_COUNT];
} TlDatabase;

/* Called from _PG_init. */
extern void tl_database_init(void);

/* This session's database.  May allocate; to be called without locks. */
extern TlDatabase *tl_database(void);

/* Any database.  May allocate; to be called without locks. */
extern TlDatabase *tl_database_enter(Oid database);

/* Forget a database that was dropped.  Neither allocates nor raises errors. */
extern void tl_database_purge(Oid database);

#endif							/* TOKENLOCK_DATABASE_H */
