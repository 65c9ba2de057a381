/*-------------------------------------------------------------------------
 *
 * token.h
 *	  Named tokens in shared memory: who holds them, who waits for them, and
 *	  when a request is granted.
 *
 * Nothing here sleeps.  A function that takes a TlToken needs its lock, which
 * tl_token_lock gives; no second token may be locked meanwhile.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_TOKEN_H
#define TOKENLOCK_TOKEN_H

#include "shmem.h"
#include "tokenlock.h"

/* How long a grant of the session itself lasts; OWNER: not the session's. */
typedef enum TlScope
{
	TL_SCOPE_OWNER,				/* a named owner's: a lease */
	TL_SCOPE_TRANSACTION,
	TL_SCOPE_SESSION
} TlScope;

/* Who asks: this session, or a named owner of the current role. */
typedef struct TlOwner
{
	Oid			role;
	int			procno;			/* of the session that asks */
	int			pid;
	bool		named;
	uint8		len;			/* of name; 0 when not named */
	char		name[TL_NAME_MAX];	/* not terminated */
} TlOwner;

/* What a request was told. */
typedef enum TlAnswer
{
	TL_ANSWER_BUSY,				/* not granted */
	TL_ANSWER_NEW,				/* granted */
	TL_ANSWER_AGAIN				/* the owner had it already */
} TlAnswer;

/* The grant that a request got, or found. */
typedef struct TlGrant
{
	uint64		fence;			/* 0: none */
	TlTime		expires;		/* TL_NEVER: untimed */
	uint64		hold_serial;	/* key of the hold lock it keeps; 0: none */
	uint64		dropped_serial; /* key of the hold lock it no longer keeps */
} TlGrant;

/* A request for a token. */
typedef struct TlRequest
{
	TlKey		key;
	TlOwner		owner;
	TlScope		scope;
	TlTime		ttl;			/* 0: none given */
	TlTime		wait;			/* 0: answer at once; TL_NEVER: no limit */
	TlGrant		grant;			/* out */
} TlRequest;

/*
 * TlHolder: one grant.  Linked from its token and covered by the token's
 * lock.  It counts until its end has come; who sees one that has lapsed
 * removes it.
 */
typedef struct TlHolder
{
	dsa_pointer next;
	uint64		fence;
	uint64		hold_serial;	/* key of the hold lock kept for it; 0: none */
	TlTime		ttl;			/* 0: untimed */
	TlTime		expires;		/* TL_NEVER: untimed */
	TlTime		acquired;		/* for display */
	Oid			role;
	int			procno;			/* session that asked: the owner when unnamed */
	int			pid;
	uint8		scope;			/* TlScope */
	uint8		owner_len;
	char		owner[FLEXIBLE_ARRAY_MEMBER];
} TlHolder;

/*
 * TlWaiter: one request that waits.  Linked from its token in the order of
 * arrival and covered by the token's lock.  Made and removed by the backend
 * that waits.
 */
typedef struct TlWaiter
{
	dsa_pointer next;
	TlTime		since;			/* for display */
	TlTime		deadline;		/* TL_NEVER: none */
	Oid			role;
	int			procno;
	int			pid;
	bool		kicked;			/* told to leave the lock's queue and look */
	uint8		owner_len;		/* 0: the session itself */
	char		owner[FLEXIBLE_ARRAY_MEMBER];
} TlWaiter;

/*
 * TlToken: what is known of one name.  Made by the first request that finds
 * none, and removed by whoever unlocks it when it has neither holders nor
 * waiters.  The lock is the partition lock of the hash table.
 *
 * Each backend keeps the last entry that it emptied, because a token is often
 * taken again by who has just put it; it removes that one when it empties
 * another, or ends.
 */
typedef struct TlToken
{
	TlKey		key;
	uint64		queue_serial;	/* key of the lock that waiters queue on; 0:
								 * nobody has waited yet */
	dsa_pointer holders;		/* TlHolder list */
	dsa_pointer waiters;		/* TlWaiter list, in order of arrival */
	int			nwaiters;
	int			head_procno;	/* the waiter that has the queue lock; -1: none */
	int			kept_by;		/* process that keeps it when empty; -1: none */
} TlToken;

/* What a waiter sees that looks at its token. */
typedef struct TlLook
{
	bool		free;			/* to be had now */
	bool		mine;			/* this owner holds it already */
	uint64		hold_serial;	/* the holder keeps this lock; 0: none */
	TlTime		next_change;	/* when time alone changes something */
} TlLook;

/* Called from _PG_init. */
extern void tl_token_init(void);

/*
 * Lock the token of that name.  Returns NULL, locking nothing, when there is
 * none and create is false; with create, call tl_shmem_make_room first.
 * Holders that have lapsed are removed.
 */
extern TlToken *tl_token_lock(const TlKey *key, bool create);

/*
 * The time, read under the lock of the token at hand and once for it: a time
 * from before could revive a lease that has lapsed since.
 */
extern TlTime tl_token_now(void);

/* Unlock the token, and remove it when nothing is left of it. */
extern void tl_token_unlock(TlToken *token);

/* The grant of this owner (if fence is not 0, only that very one), or NULL. */
extern TlHolder *tl_token_holder_of(TlToken *token, const TlOwner *owner,
									uint64 fence);

/* The lease of any named owner of this role that has this fence, or NULL. */
extern TlHolder *tl_token_lease_of_role(TlToken *token, Oid role,
										uint64 fence);

/* The first holder, or NULL; with exclusive tokens the only one. */
extern TlHolder *tl_token_first_holder(TlToken *token);

/*
 * Make sure that a holder or waiter can be added for this owner without
 * allocating: to be called before the token is locked.  Raises the error when
 * memory is full.
 */
extern void tl_token_prepare(const TlOwner *owner);

/* Give back what this backend keeps for later; at the end of the process. */
extern void tl_token_discard(void);

/*
 * Grant the request, if it can be.  "Again" restarts the owner's lease.  A
 * new grant needs a free token and, unless the caller is the head of the
 * line, no waiters; hold_serial is the key of a lock that the caller has
 * taken to go with it, or 0.  *fence_missing is set when the only thing
 * missing was a fence number.
 */
extern TlAnswer tl_token_try(TlToken *token, TlRequest *request, bool head,
							 uint64 hold_serial, bool *fence_missing);

/* What would happen to the request now?  Changes nothing. */
extern void tl_token_look(TlToken *token, const TlRequest *request, bool head,
						  TlLook *look);

/* Set the end of a grant to now + ttl.  Wakes the head. */
extern void tl_token_restart(TlToken *token, TlHolder *holder, TlTime ttl,
							 TlGrant *grant);

/* Remove a grant.  Wakes the head. */
extern void tl_token_remove_holder(TlToken *token, TlHolder *holder);

/* Give the grant a new hold lock, or none (0).  Wakes the head. */
extern void tl_token_set_hold(TlToken *token, TlHolder *holder, uint64 serial);

/* Add to the line, leave it, become its head. */
extern void tl_token_add_waiter(TlToken *token, const TlRequest *request,
								TlTime deadline);
extern void tl_token_remove_waiter(TlToken *token, int procno);
extern TlWaiter *tl_token_waiter_of(TlToken *token, int procno);
extern void tl_token_set_head(TlToken *token, int procno);

/*
 * Mark the waiters of a named owner that just got the token, and return how
 * many they are: they need not wait on, and wait.c gets them out of the line.
 * At most max process numbers are returned.
 */
extern int	tl_token_kick_same_owner(TlToken *token, const TlOwner *owner,
									 int *procnos, int max);

/*
 * Call a function with each token of this database, locked but only to be
 * read.  Holders that have lapsed by now are still in it.
 */
typedef void (*TlTokenVisitor) (TlToken *token, TlTime now, void *arg);
extern void tl_token_visit(TlTokenVisitor visit, void *arg);

#endif							/* TOKENLOCK_TOKEN_H */
