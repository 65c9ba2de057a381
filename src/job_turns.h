/*-------------------------------------------------------------------------
 *
 * job_turns.h
 *	  The turns of one job table in shared memory.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_TURNS_H
#define TOKENLOCK_JOB_TURNS_H

#include "job_position.h"

/*
 * TlTurn: one value of the key column that is being handed out, or that was
 * passed by on the way because its turn had not come.  Covered by the lock of
 * the job table's entry.
 *
 * The owner is the truth: while a transaction has a turn, no other hands out
 * jobs of it.  All else are hints where to look.
 */
typedef struct TlTurn
{
	uint64		hash;			/* of the value; 0: this place is free */
	int			next;			/* in the bucket, or among free places; -1 */
	int			before;			/* among those to be offered */
	int			behind;
	bool		offered;		/* is among these */
	bool		rests;			/* the head was in the way, and is noted */
	bool		passed;			/* has ready rows that no claimer comes across */
	int			owner;			/* number of the process, from 1; 0: nobody */
	TransactionId prepared;		/* had it and was prepared; may have ended */
	uint64		call;			/* that had it last */
	TlTime		held_until;		/* not to be tried before, unless it comes
								 * free */
	uint32		version;		/* changes when that may have become wrong */
	TlPoint		value;			/* of the key column */
	TlPoint		head;			/* id of the first of its rows, if known */
} TlTurn;

/* Bytes for so many turns. */
extern Size tl_turns_size(int capacity);

/* Move the turns into a larger piece of memory. */
extern void tl_turns_move(TlTurns *turns, dsa_pointer memory, int capacity);

/* The table began anew: only who has a turn still matters. */
extern void tl_turns_forget(TlTurns *turns);

/* The turn at a place below "fresh"; its hash may be 0. */
extern TlTurn *tl_turns_place(const TlTurns *turns, int at);

extern TlTurn *tl_turns_find(const TlTurns *turns, uint64 hash);

extern bool tl_turns_have_room(const TlTurns *turns, int n);

/* Add a turn, which nobody has; there must be room. */
extern TlTurn *tl_turns_add(TlTurns *turns, uint64 hash, const TlKeyType *type,
							Datum value);

/* Remove one that nobody has. */
extern void tl_turns_discard(TlTurns *turns, TlTurn *turn);

/* Let the next claimer try it; or not any more. */
extern void tl_turns_offer(TlJobTable *table, TlTurn *turn);
extern void tl_turns_withdraw(TlTurns *turns, TlTurn *turn);

#endif							/* TOKENLOCK_JOB_TURNS_H */
