/*-------------------------------------------------------------------------
 *
 * promise.h
 *	  How long leases may still run after a crash: reserved durably, ahead.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_PROMISE_H
#define TOKENLOCK_PROMISE_H

#include "database.h"
#include "tokenlock.h"

/* Is a lease of this ttl too long to be a promise, so that it needs a record? */
static inline bool
tl_promise_too_long(TlTime ttl)
{
	return ttl > (TlTime) tl_grace * 1000;
}

/*
 * May a lease of this ttl begin now?  To be asked with its token's lock held,
 * and with the time that was read under it.  If not: tl_promise_reserve, and
 * ask again.
 */
static inline bool
tl_promise_covers(TlTime ttl, TlTime now)
{
	TlDatabase *database = tl_database();

	return (uint64) ttl <= pg_atomic_read_u64(&database->promised) &&
		(uint64) now <= pg_atomic_read_u64(&database->promised_until);
}

/*
 * Reserve, so that leases of this ttl may begin for about a minute.  Reads
 * catalogs, waits for locks and for the disk; to be called without locks.
 */
extern void tl_promise_reserve(TlTime ttl);

/* The same after the grace, so that what was reserved before it is forgotten. */
extern void tl_promise_renew(void);

/* The extension is dropped or created: its pages know of no promise. */
extern void tl_promise_forget(void);

#endif							/* TOKENLOCK_PROMISE_H */
