/*-------------------------------------------------------------------------
 *
 * job_turn.h
 *	  Turns: jobs that have the same value in the key column are handed out
 *	  one at a time.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_TURN_H
#define TOKENLOCK_JOB_TURN_H

#include "job_position.h"
#include "job_table.h"

/* A row, or a turn of which no row is known. */
typedef struct TlTurnRow
{
	uint64		hash;			/* 0: it has no key and takes no turn */
	Datum		value;			/* of the key column */
	bool		id_known;
	Datum		id;
	bool		taken;			/* by this call */
	bool		ours;			/* by this transaction before */
	uint32		version;		/* of the turn then */
	bool		fresh;			/* for those who try it: the first time, ... */
	bool		again;			/* ... or not */
} TlTurnRow;

/* Why a turn that was taken is given up. */
typedef enum TlTurnReason
{
	TL_TURN_EMPTY,				/* no row of it is ready */
	TL_TURN_BUSY,				/* a row of it is claimed */
	TL_TURN_REST,				/* its first row is locked, or not due */
	TL_TURN_UNKNOWN				/* the caller does not see all */
} TlTurnReason;

/*
 * The hash of a value of the key column, 0 for null.  The value is detoasted,
 * in the current memory context, so that it can be kept as a point.
 */
extern uint64 tl_turn_hash(TlJobTableInfo *info, Datum *value, bool isnull);

/*
 * Take the turns of rows that were found in the table's order, until "want"
 * are taken; those without a key count, too.  Returns how many of the rows
 * were gone through: it stops where there is no room for one more turn.  With
 * "note", those that are passed by are noted, so that they are offered when
 * their turn comes.  The caller must have reserved notes for n of them
 * (job_xact.h), and notes at once what was taken.
 */
extern int	tl_turn_take(TlJobTableInfo *info, TlTurnRow *rows, int n,
						 int64 want, uint64 call, bool note);

/* Free the turns of prepared transactions that have ended. */
extern void tl_turn_settle_prepared(TlJobTableInfo *info);

/* Make room for n more turns; somebody else may use it up. */
extern void tl_turn_make_room(TlJobTableInfo *info, int n);

/* Take those turns of which rows are known, as far as they can be had. */
extern void tl_turn_take_offered(TlJobTableInfo *info, TlTurnRow *rows, int n,
								 uint64 call);

/* Which of these could be taken?  Sets "taken" without doing it. */
extern void tl_turn_see(TlJobTableInfo *info, TlTurnRow *rows, int n);

/*
 * Give a turn back that was just taken.  Answers whether others should look.
 */
extern bool tl_turn_give_up(TlJobTableInfo *info, const TlTurnRow *row,
							TlTurnReason reason, bool note);

/*
 * Turns that may have come, at most max of them: those in a list of hashes
 * which this transaction has itself set free, and those on offer.
 */
extern int	tl_turn_offered(TlJobTableInfo *info, const uint64 *freed,
							int nfreed, uint64 call, TlTurnRow **found,
							int max);

/* What was found out about a turn on offer that nobody has taken. */
extern void tl_turn_found(TlJobTableInfo *info, const TlTurnRow *row,
						  bool claimed);

/* Of those held longer than they should, offer some; returns how many. */
extern int	tl_turn_look_after(TlJobTableInfo *info, int max);

/*
 * Ready rows of these values are where no claimer comes across them, or
 * (without "now") will be at the end of this transaction.  False when that was
 * known.
 */
extern bool tl_turn_note_rows(TlJobTableInfo *info, const TlTurnRow *rows,
							  int n, bool now);

/* This transaction has set these free: do not pass them by for a hint. */
extern void tl_turn_try(TlJobTableInfo *info, const uint64 *freed, int n);

/*
 * What a transaction has done to a turn: taken it, or finished or given back a
 * job of it.
 */
typedef struct TlTurnNote
{
	Oid			relation;
	SubTransactionId subid;
	bool		freed;
	uint64		hash;			/* 0: not any more */
} TlTurnNote;

typedef enum TlTurnEnd
{
	TL_TURN_COMMITTED,
	TL_TURN_ABORTED,
	TL_TURN_PREPARED
} TlTurnEnd;

/*
 * The transaction ends; n notes of one table, in the order in which things
 * happened.  Cannot fail.  Answers whether others should look for jobs.
 */
extern bool tl_turn_end(const TlTurnNote *notes, int n, TlTurnEnd end);

#endif							/* TOKENLOCK_JOB_TURN_H */
