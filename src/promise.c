/*-------------------------------------------------------------------------
 *
 * promise.c
 *	  How long leases may still run after a crash: reserved durably, ahead.
 *
 * After a crash shared memory is gone, but the leases in it may still run, and
 * nobody else may get their tokens until they are over.  A write for each
 * lease would be too much.  So what is written is the longest ttl that may be
 * given; that is then how long nothing is granted after a start.
 *
 * It is flushed before the first lease that needs it is answered, and only
 * then published in TlDatabase, where each grant and each renewal compares
 * with it.  A reservation is good for a minute.  With the next one the longest
 * ttl is lowered again to what is in use: first in TlDatabase, then all tokens
 * are looked through, and then it is written.  A lease that was checked
 * against the former value was so with its token's lock held, so it is in its
 * entry when the look gets there.
 *
 * While the grace after a start lasts, unknown leases may run, and what is
 * reserved is never less than what is left of it: there may be a crash in it.
 *
 * Who reserves has a lock on the sequence that excludes others who do, so that
 * what is published last is what was written last.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "clock.h"
#include "fence.h"
#include "miscadmin.h"
#include "page.h"
#include "promise.h"
#include "record.h"
#include "recover.h"
#include "replication/syncrep.h"
#include "storage/lockdefs.h"
#include "token.h"

/* How long a reservation is good for. */
#define TL_RESERVE_AHEAD	(INT64CONST(60) * 1000 * 1000)

static void reserve(TlTime ttl, bool anew);

void
tl_promise_reserve(TlTime ttl)
{
	reserve(ttl, false);
	tl_record_collect();
}

void
tl_promise_renew(void)
{
	reserve(0, true);
}

void
tl_promise_forget(void)
{
	TlDatabase *database = tl_database();

	pg_atomic_write_u64(&database->promised, 0);
	pg_atomic_write_u64(&database->promised_until, 0);
}

/*
 * The longest ttl of leases that live and have no record, or none any more
 * once what is being written is on disk: then they are promises.
 */
static void
look_at_leases(TlToken *token, TlTime now, void *arg)
{
	TlTime	   *longest = arg;

	for (TlHolder *holder = tl_holder_at(token->holders);
		 holder != NULL;
		 holder = tl_holder_at(holder->next))
	{
		if (holder->scope != TL_SCOPE_OWNER || holder->ended)
			continue;
		if (holder->writing ||
			(!holder->recorded && holder->expires != TL_NEVER &&
			 holder->expires > now))
			*longest = Max(*longest, holder->ttl);
	}
}

static void
reserve(TlTime ttl, bool anew)
{
	TlDatabase *database = tl_database();
	TlTime		setting = (TlTime) tl_grace * 1000;
	TlTime		grace_until;
	TlReservation former;
	TlReservation next;
	Relation	sequence;
	XLogRecPtr	lsn;
	TlTime		now;
	TlTime		good_until;
	bool		known;

	/* excludes itself, and nothing else that anybody does with it */
	sequence = tl_page_open(TL_LEASE_SEQUENCE, ShareUpdateExclusiveLock);
	now = tl_now();
	if (!anew && tl_promise_covers(ttl, now))
	{
		relation_close(sequence, ShareUpdateExclusiveLock);
		return;
	}
	known = tl_page_read_reservation(sequence, &former);
	if (!known)
		memset(&former, 0, sizeof(former));
	grace_until = tl_recover_grace_until();

	next.longest = ttl;
	good_until = pg_atomic_read_u64(&database->promised_until);
	if (!anew && now <= good_until)
	{
		/* the others still run; what is published may be lowered, by an error */
		next.longest = Max(ttl, former.longest);
		next.grace = Max(former.grace, setting);
	}
	else
	{
		good_until = now + TL_RESERVE_AHEAD;
		if (pg_atomic_read_u64(&database->promised) > (uint64) ttl)
			pg_atomic_write_u64(&database->promised, ttl);
		/* takes each partition's lock, so the look finds what was checked */
		tl_token_visit(look_at_leases, &next.longest);
		/* a long lease on its way to its record is not promised yet */
		next.longest = Min(next.longest, Max(former.grace, setting));
		next.grace = Max(next.longest, setting);
	}
	if (grace_until > now)
	{
		next.longest = Max(next.longest, grace_until - now);
		if (known)
		{
			next.longest = Max(next.longest, former.longest);
			next.grace = Max(next.grace, former.grace);
		}
	}
	next.history = tl_fence_history();
	next.boot = tl_boot();
	next.until = good_until + next.longest;

	lsn = tl_page_write_reservation(sequence, &next);
	XLogFlush(lsn);
	/* a promoted standby has to know that there are leases, and how long */
	if (!known || next.grace > former.grace)
	{
		HOLD_INTERRUPTS();
		SyncRepWaitForLSN(lsn, true);
		RESUME_INTERRUPTS();
	}

	pg_atomic_write_u64(&database->promised, next.longest);
	pg_write_barrier();
	pg_atomic_write_u64(&database->promised_until, good_until);
	relation_close(sequence, ShareUpdateExclusiveLock);
}
