/*-------------------------------------------------------------------------
 *
 * job_xact.h
 *	  What this transaction has claimed and finished, and what is to be done
 *	  about it when it ends.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_XACT_H
#define TOKENLOCK_JOB_XACT_H

#include "job_key.h"
#include "shmem.h"

typedef enum TlJobNoteKind
{
	TL_NOTE_CLAIMED,			/* undone by an abort */
	TL_NOTE_TAKEN,				/* from a dead worker; counts at commit */
	TL_NOTE_FINISHED,			/* counts at commit */
	TL_NOTE_GIVEN_UP,			/* the same, with another status */
	TL_NOTE_RELEASED			/* counts at commit, and leaves ready rows */
} TlJobNoteKind;

/* Prepare this backend; each entry point calls it first. */
extern void tl_job_attach(void);

/*
 * Make sure that the following can be called without failing, once each.
 * Whatever is to be noted must be reserved before it is done.
 */
extern void tl_job_reserve(void);

/*
 * The transaction called for a worker, which was counted as open for it.  To
 * be done once, after tl_job_is_open said no.
 */
extern bool tl_job_is_open(const TlKey *worker);
extern void tl_job_open(const TlKey *worker);

/* The worker was handed rows: by this session, once that is committed. */
extern void tl_job_note_got(const TlKey *worker);

/* A claim has taken it on itself to deal with rows from before a lapse. */
extern void tl_job_note_unreleased(const TlKey *worker);

/*
 * The worker has claimed etc. n rows; range may be NULL.  That of a dead
 * worker's is what tl_worker_lower_dead expects.
 */
extern void tl_job_note(TlJobNoteKind kind, const TlKey *worker, int64 n,
						const TlRange *range, const TlKeyType *type);

/* Of the last note: no island is needed, as its rows have turns. */
extern void tl_job_note_no_island(void);

/* The worker's range was replaced; an abort of what it gave back restores it. */
extern void tl_job_note_replaced(const TlKey *worker, const TlRange *range);

/*
 * Merge the last note with an earlier one of its kind, so that a transaction
 * of many claims does not grow a long list.  Runs the key's comparison.
 */
extern void tl_job_merge_note(const TlKeyType *type);

/*
 * Turns (job_turn.h).  A turn was taken, which the end of the transaction
 * gives back; or a job of it was, or is being, finished or given back.  Each
 * is to be reserved before.  What was taken can be given up again.
 */
extern void tl_job_reserve_turns(int n);
extern void tl_job_note_turn(Oid relation, uint64 hash, bool freed);
extern void tl_job_give_up_turn(Oid relation, uint64 hash);

/* Those of a table that this transaction has set free; palloc'd. */
extern uint64 *tl_job_freed_turns(Oid relation, int *n);

/* Of n rows of the last claim it turned out that they are not claimed. */
extern void tl_job_note_fewer(const TlKey *worker, int64 n);

/* How many of the worker's rows this transaction gives back, if it commits. */
extern int64 tl_job_pending(const TlKey *worker);

#endif							/* TOKENLOCK_JOB_XACT_H */
