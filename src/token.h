/*-------------------------------------------------------------------------
 *
 * token.h
 *	  Named tokens in shared memory: who holds them, who waits for them, and
 *	  when a request is granted.
 *
 * This header has the types, and the life of an entry; grant.h and line.h have
 * what is done with its holders and waiters.  Nothing of it sleeps.  A
 * function that takes a TlToken needs its lock, which tl_token_lock gives; no
 * second token may be locked meanwhile.
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
	TL_ANSWER_QUEUED,			/* not granted, but a place in line is kept */
	TL_ANSWER_NEW,				/* granted */
	TL_ANSWER_AGAIN				/* the owner had it already */
} TlAnswer;

/* What a grant or a place lacked that the caller can get and try again. */
typedef enum TlLack
{
	TL_LACK_NOTHING,
	TL_LACK_FENCE,				/* a reserved fence number */
	TL_LACK_RECORD,				/* a record in shared memory */
	TL_LACK_PROMISE,			/* a reservation for request->lacks.ttl */
	TL_LACK_PAGES,				/* a long lease: tl_record_open */
	TL_LACK_SLOT,				/* a slot for its record */
	TL_LACK_RESTART,			/* a restart of the lease lacks.fence on disk */
	TL_LACK_WRITER,				/* the end of a write to it */
	TL_LACK_CLEAR				/* the removal of the remnant lacks.fence */
} TlLack;

/* More about that. */
typedef struct TlLacks
{
	TlTime		ttl;
	uint64		fence;
} TlLacks;

/* The grant that a request got, or found. */
typedef struct TlGrant
{
	uint64		fence;			/* 0: none */
	TlTime		expires;		/* TL_NEVER: untimed */
	uint64		hold_serial;	/* key of the hold lock it keeps; 0: none */
	uint64		dropped_serial; /* key of the hold lock it no longer keeps */
	uint64		upgraded_from;	/* fence of the shared hold that became this
								 * one; 0: none */
	bool		to_record;		/* its record is to be written now */
} TlGrant;

/* A request for a token. */
typedef struct TlRequest
{
	TlKey		key;
	TlOwner		owner;
	TlScope		scope;
	bool		shared;
	int32		capacity;		/* of permits; 1: exclusive.  1 when shared */
	TlTime		ttl;			/* 0: none given */
	bool		untimed;		/* no default for a named owner's ttl either */
	TlTime		wait;			/* 0: answer at once; TL_NEVER: no limit */
	TlTime		keep_place;		/* 0: keep no place in line */
	bool		goes_on;		/* if refused, it will be made again */
	bool		made_again;		/* it was refused a moment ago */
	bool		may_record;		/* tl_record_open was called */
	uint64		restarted;		/* the lease that was restarted on disk */
	TlLacks		lacks;			/* out: with a TlLack */
	TlGrant		grant;			/* out */
	int64		place;			/* out: in line, 1 is next; 0: none kept */
} TlRequest;

/*
 * TlHolder: one grant.  Linked from its token and covered by the token's
 * lock.  It counts until its end has come or it was put; who sees one that
 * has lapsed removes it.
 *
 * A guarded transaction that commits pins the grant.  It then stays until the
 * last pin is gone, and nobody that it excludes is granted; but it is its
 * owner's no longer than otherwise.
 *
 * One with a record on disk stays until that is removed: see record.c.
 */
typedef struct TlHolder
{
	dsa_pointer next;
	uint64		fence;
	uint64		hold_serial;	/* key of the hold lock kept for it; 0: none */
	TlTime		ttl;			/* 0: untimed */
	TlTime		expires;		/* TL_NEVER: untimed */
	TlTime		acquired;
	Oid			role;
	int			procno;			/* session that asked: the owner when unnamed */
	int			pid;
	int32		capacity;		/* of permits that its request gave; 0: shared */
	int32		pins;			/* transactions that commit under its guard */
	int32		record;			/* slot of its record on disk + 1; 0: none */
	bool		recorded;		/* that says of it what is said here */
	bool		writing;		/* somebody writes it at the moment */
	bool		ended;			/* put or broken, but pinned or with a record;
								 * or lapsed with one */
	uint8		scope;			/* TlScope */
	uint8		owner_len;
	char		owner[FLEXIBLE_ARRAY_MEMBER];
} TlHolder;

/* How somebody stands in line. */
typedef enum TlStanding
{
	TL_STANDING_NONE,			/* not at all */
	TL_STANDING_GATE,			/* a session that queues on the gate */
	TL_STANDING_UPGRADE,		/* a shared holder that wants it alone */
	TL_STANDING_PLACE			/* a named owner's place, with or without a
								 * session that sleeps on its latch */
} TlStanding;

/*
 * TlWaiter: one that waits in line.  Linked from its token in the order of
 * arrival and covered by the token's lock.  Made and removed by the backend
 * that waits; a place is made for an owner, and removed when that owner is
 * granted, or when it has lapsed.
 */
typedef struct TlWaiter
{
	dsa_pointer next;
	uint64		ticket;			/* order of arrival */
	TlTime		since;			/* for display */
	TlTime		deadline;		/* TL_NEVER: none; of a place without a
								 * session: when it lapses */
	Oid			role;
	int			procno;			/* of a place: the session that sleeps; or -1 */
	int			pid;
	uint8		standing;		/* TlStanding, never NONE */
	bool		kicked;			/* told to leave a lock's queue and look */
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
	int			nsleepers;		/* of them, on the latch without the gate */
	int			head_procno;	/* the waiter that has the queue lock; -1: none */
	int			kept_by;		/* process that keeps it when empty; -1: none */
} TlToken;

/* What a waiter sees that looks at its token. */
typedef struct TlLook
{
	bool		free;			/* to be had now */
	bool		mine;			/* this owner holds it already */
	bool		upgrade;		/* this owner has it shared, and wants it alone */
	uint64		hold_serial;	/* the sole holder keeps this lock; 0: none */
	TlTime		next_change;	/* when time alone changes something */
} TlLook;

/* Called from _PG_init. */
extern void tl_token_init(void);

/*
 * Lock the token of that name.  Returns NULL, locking nothing, when there is
 * none and create is false; to be true only if tl_shmem_has_room.
 * Holders and places that have lapsed are removed.
 */
extern TlToken *tl_token_lock(const TlKey *key, bool create);

/*
 * The time, read under the lock of the token at hand and once for it: a time
 * from before could revive a lease that has lapsed since.
 */
extern TlTime tl_token_now(void);

/* Likewise, by tl_now_coarse. */
extern TlTime tl_token_about(void);

/* Unlock the token, and remove it when nothing is left of it. */
extern void tl_token_unlock(TlToken *token);

/* Wake who may have something to do now that the token has changed. */
extern void tl_token_wake(TlToken *token);

/*
 * Records.  A holder and a waiter of one owner take turns in a block of one
 * size; the lists are linked by their addresses in the area.
 */
static inline TlHolder *
tl_holder_at(dsa_pointer pointer)
{
	return DsaPointerIsValid(pointer) ?
		(TlHolder *) tl_shmem_address(pointer) : NULL;
}

static inline TlWaiter *
tl_waiter_at(dsa_pointer pointer)
{
	return DsaPointerIsValid(pointer) ?
		(TlWaiter *) tl_shmem_address(pointer) : NULL;
}

/*
 * Make sure that a holder or waiter can be added for an owner of this name
 * length without allocating: to be called before the token is locked.  When
 * memory is full it answers false or, with must, raises the error.
 */
extern bool tl_token_prepare(int owner_len, bool must);

/* Is there a record for such an owner? */
extern bool tl_token_has_record(int owner_len);

/* The block that tl_token_prepare has set aside. */
extern dsa_pointer tl_token_take_record(int owner_len);

/* Free the record of a holder or waiter that was taken off its list. */
extern void tl_token_give_record(dsa_pointer record, int owner_len);

/* Give back the block that is set aside; children must not inherit it. */
extern void tl_token_discard_spare(void);

/* Give back what this backend keeps for later; at the end of the process. */
extern void tl_token_discard(void);

/*
 * Call a function with each token of this database, locked but only to be
 * read.  What has lapsed by now is still in it.
 */
typedef void (*TlTokenVisitor) (TlToken *token, TlTime now, void *arg);
extern void tl_token_visit(TlTokenVisitor visit, void *arg);

/*
 * The head of a line that may be asleep on the hold lock of a grant which was
 * ended, but whose lock goes on to be held: marked, and to be kicked.
 */
typedef struct TlKick
{
	TlKey		key;
	int			procno;
	uint64		hold_serial;
} TlKick;

/*
 * Remove all tokens of a database.  Neither allocates nor raises errors.
 * Returns how many heads the caller has to kick, at most max: if that many,
 * there may be tokens left.
 */
extern int	tl_token_purge(Oid database, TlKick *kicks, int max);

#endif							/* TOKENLOCK_TOKEN_H */
