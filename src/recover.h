/*-------------------------------------------------------------------------
 *
 * recover.h
 *	  The first look at a database after a start of the server.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_RECOVER_H
#define TOKENLOCK_RECOVER_H

#include "database.h"
#include "tokenlock.h"

/* Called from _PG_init. */
extern void tl_recover_init(void);

/*
 * Make sure that this database has been looked at since the server started.
 * Not during recovery.  Reads catalogs, waits for locks and for the disk; to
 * be called without locks, by each entry point.
 */
extern void tl_recover_now(TlDatabase *database);

static inline void
tl_recover(void)
{
	TlDatabase *database = tl_database();

	if (unlikely(pg_atomic_read_u32(&database->state) != TL_DATABASE_OPEN))
		tl_recover_now(database);
}

/* When the grace ends; 0 when there is none (any more). */
extern TlTime tl_recover_grace_until(void);

/*
 * Is the grace over, so that tokens may be granted?  By the time that was
 * read under the token's lock.
 */
static inline bool
tl_recover_may_grant(TlTime now)
{
	TlDatabase *database = tl_database();

	return likely(pg_atomic_read_u32(&database->state) == TL_DATABASE_OPEN) ||
		now >= tl_recover_grace_until();
}

#endif							/* TOKENLOCK_RECOVER_H */
