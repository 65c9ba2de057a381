/*-------------------------------------------------------------------------
 *
 * record.h
 *	  Long leases: recorded durably, so that they survive with their holder.
 *
 * All of these read catalogs and wait for locks and for the disk, unless they
 * say otherwise, and are to be called without locks.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_RECORD_H
#define TOKENLOCK_RECORD_H

#include "compat.h"
#include "database.h"
#include "page.h"
#include "token.h"

/*
 * Open what a record is written to; to be done before a long lease is granted
 * in memory, so that nothing but the disk can fail afterwards.
 */
extern Relation tl_record_open(void);

/*
 * Take a slot for a lease: its number + 1, or 0 when there is none.  With its
 * token's lock held; waits for nothing.
 */
extern int32 tl_record_take_slot(void);
tl_noreturn extern void tl_record_error_full(void);

/*
 * Record a lease that was granted just now ("writing" is set).  On an error
 * the grant is ended.
 */
extern void tl_record_granted(Relation sequence, const TlKey *key,
							  uint64 fence);

/*
 * Restart a lease that has a record or is to have one.  False when it has
 * ended or lapsed before, or meanwhile.
 */
extern bool tl_record_restart(const TlKey *key, uint64 fence, TlTime ttl,
							  TlGrant *grant);

/*
 * Remove the remnant of a lease that has ended: its record first.  Does
 * nothing when it is none, or is pinned.
 */
extern void tl_record_clear(const TlKey *key, uint64 fence);

/* Wait until nobody writes the record of this lease. */
extern void tl_record_wait(const TlKey *key, uint64 fence);

/* From time to time: remove remnants that nobody asks for. */
extern void tl_record_collect(void);

/*
 * The first look at the database: put the leases of all records into memory,
 * those of another boot not to end before the grace.
 */
extern void tl_record_load(TlDatabase *database, Relation sequence,
						   TlTime grace_until);

/* For the end of a drop; cannot fail.  All slots are free, or their memory. */
extern void tl_record_forget(TlDatabase *database);
extern void tl_record_free(TlDatabase *database);

#endif							/* TOKENLOCK_RECORD_H */
