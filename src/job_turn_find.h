/*-------------------------------------------------------------------------
 *
 * job_turn_find.h
 *	  Finding ready jobs in tables where jobs of the same key take turns.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_TURN_FIND_H
#define TOKENLOCK_JOB_TURN_FIND_H

#include "job_turn.h"

#include "utils/portal.h"

/* One claim's search. */
typedef struct TlTurnSearch
{
	TlJobTableInfo *info;
	Datum		sid;
	TlJobRows  *rows;			/* locked ones are appended */
	int64		batch;			/* until there are so many */
	bool		use_position;	/* rows that are passed by may be left behind */
	bool		sees_rows;		/* no row security */
	bool		sees_all;		/* nor an old snapshot */
	bool		in_steps;		/* stop after many rows whose turn has not
								 * come */
	bool		stopped;
	uint64		call;			/* serial number: each turn is taken once */
} TlTurnSearch;

/*
 * Look at the turns that have come free, whose rows are behind the position.
 * With "hard", also at some that should have by now.
 */
extern void tl_turn_find_offered(TlTurnSearch *search, bool hard);

/*
 * Go through the ready rows of a range in the table's order, until there are
 * enough.  With "in_steps" it may stop before, so that the caller can let others
 * know, and go on behind *last.  That is the id of the last one that was looked at; answers whether
 * there was any.
 */
extern bool tl_turn_find_ready(TlTurnSearch *search, const TlJobFind *find,
							   Datum *last);

/*
 * For those who wait for jobs: is there a row in this range that a claim could
 * have, or one of those that tl_turn_find_offered finds?  Nothing is locked.
 */
extern bool tl_turn_is_ready(TlJobTableInfo *info, const TlJobFind *find,
							 bool use_position);
extern bool tl_turn_is_offered(TlJobTableInfo *info);

/*
 * Statements (job_turn_sql.c).
 *
 * Open a cursor on the ready rows of a range (not of a limited number), in
 * the table's order, without locking them: columns id and key.  Or on the
 * first row of each key and, up to the limit, those without one.
 */
extern Portal tl_turn_open(TlJobTableInfo *info, const TlJobFind *find);
extern Portal tl_turn_open_heads(TlJobTableInfo *info, int64 limit);

/*
 * Lock those of these rows that are ready and the first of their key, while
 * no row of that key is claimed.
 */
extern void tl_turn_verify(TlJobTableInfo *info, const Datum *ids, int n,
						   TlJobRows *rows);

/*
 * Is one of them such a row, by a snapshot of this moment, and free to be
 * locked?
 */
extern bool tl_turn_any_free(TlJobTableInfo *info, const Datum *ids, int n);

/*
 * What is there of these keys?  Sets the id of the first row, and in claimed[]
 * whether there is one that is claimed.
 */
extern void tl_turn_heads(TlJobTableInfo *info, TlTurnRow *rows, int n,
						  bool *claimed);

#endif							/* TOKENLOCK_JOB_TURN_FIND_H */
