/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  The holders of a token: who has it, and who may have it.
 *
 * All of these need the token's lock (token.h).
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_GRANT_H
#define TOKENLOCK_GRANT_H

#include "stats.h"
#include "token.h"

/* A lease outside of shared memory. */
typedef struct TlLease
{
	uint64		fence;
	TlTime		ttl;
	TlTime		expires;
	TlTime		acquired;
	Oid			role;
	int32		capacity;
	int32		record;			/* as in TlHolder */
	uint8		owner_len;
	char		owner[TL_NAME_MAX];
} TlLease;

/*
 * Copy one; and put it back, after a restart.  That locks its token itself,
 * and answers false when there is no room.
 */
extern void tl_grant_copy(const TlHolder *holder, TlLease *lease);
extern bool tl_grant_revive(const TlKey *key, const TlLease *lease);

/*
 * The grant of this owner (if fence is not 0, only that very one), or NULL.
 * One that was put or has lapsed, and is still there only because it is
 * pinned, is nobody's.
 */
extern TlHolder *tl_grant_of(TlToken *token, const TlOwner *owner,
							 uint64 fence);

/* The lease of any named owner of this role that has this fence, or NULL. */
extern TlHolder *tl_grant_of_role(TlToken *token, Oid role, uint64 fence);

/*
 * Anybody's grant that has this fence, or NULL; and the same unless it is
 * there only because it is pinned.
 */
extern TlHolder *tl_grant_with(TlToken *token, uint64 fence);
extern TlHolder *tl_grant_live(TlToken *token, uint64 fence);

/*
 * Grant the request, if it can be.  "Again" restarts the owner's lease.
 * hold_serial is the key of a lock that the caller has taken to go with a new
 * grant, or 0.  "Busy" with *lack set: only that was missing.
 */
extern TlAnswer tl_grant_try(TlToken *token, TlRequest *request,
							 uint64 hold_serial, TlLack *lack);

/* What would happen to the request now?  Changes nothing. */
extern void tl_grant_look(TlToken *token, const TlRequest *request,
						  TlLook *look);

/* Is a grant for this request to keep a hold lock? */
extern bool tl_grant_keeps_lock(const TlRequest *request);

/*
 * What a restart of the lease with this ttl (0: the one it has) needs first.
 */
extern TlLack tl_grant_restart_lack(const TlHolder *holder, TlTime ttl,
									TlLacks *lacks);

/* Set the end of a grant to now + ttl.  Wakes the line if that is sooner. */
extern void tl_grant_restart(TlToken *token, TlHolder *holder, TlTime ttl,
							 TlGrant *grant);

/* The same with an end that was decided before. */
extern void tl_grant_set_end(TlToken *token, TlHolder *holder, TlTime ttl,
							 TlTime expires, TlGrant *grant);

/*
 * End a grant, by a put or a break: remove it or, if it is pinned or has a
 * record, mark it.  Wakes the line.
 */
extern void tl_grant_end(TlToken *token, TlHolder *holder, TlEvent how);

/* Give a grant a new hold lock, or none (0).  Wakes the line. */
extern void tl_grant_set_hold(TlToken *token, TlHolder *holder,
							  uint64 serial);

/* Keep a grant for a transaction that commits, and let go of it again. */
extern void tl_grant_pin(TlHolder *holder);
extern void tl_grant_unpin(TlToken *token, TlHolder *holder);

/* Is this what is left of a lease, until its record is removed? */
extern bool tl_grant_is_remnant(const TlHolder *holder);

/*
 * A pin or the mark of a write went: remove the grant if it is over and
 * nothing keeps it.  Wakes the line.
 */
extern void tl_grant_settle(TlToken *token, TlHolder *holder);

/* End a grant whatever keeps it, as its record goes with the sequence. */
extern void tl_grant_purge(TlToken *token, TlHolder *holder);

/* Remove what has lapsed; for token.c. */
extern void tl_grant_remove_lapsed(TlToken *token);

#endif							/* TOKENLOCK_GRANT_H */
