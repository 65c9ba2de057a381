/*-------------------------------------------------------------------------
 *
 * job_finish.h
 *	  Finishing jobs, and giving them back.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_FINISH_H
#define TOKENLOCK_JOB_FINISH_H

#include "job_table.h"
#include "job_worker.h"

#include "utils/array.h"

/* A call of a worker: who, and on what. */
typedef struct TlJobCall
{
	TlJobTableInfo *info;
	Datum		sid;			/* as the column has it */
	TlKey		worker;
	TlWorkerState state;		/* as it was when the call began */
} TlJobCall;

/*
 * Begin a call on a table: check rights and sid, note a lapse, restart the
 * lease.  From then on the transaction keeps the worker alive.
 */
extern void tl_job_begin(TlJobCall *call, Oid relation, text *sid,
						 TlWorkerCall kind, TlTime ttl);

/* A list of ids, of which none may be null.  n is how many there are. */
typedef struct TlJobList
{
	Datum		ids;
	Oid			array_type;
	int			n;
} TlJobList;

extern void tl_job_list(TlJobList *list, ArrayType *ids, Oid array_type);

/* The rows of the list that the worker holds are done; returns how many. */
extern int64 tl_job_finish_list(TlJobCall *call, const TlJobList *list);

/* Give the rows of the list that the worker holds back to ready. */
extern int64 tl_job_release_list(TlJobCall *call, const TlJobList *list);

/*
 * The same with all rows that it holds.  "lapsed" is for those of a worker
 * that may have begun to work on them: the attempt is spent.
 */
extern int64 tl_job_release_all(TlJobCall *call, bool lapsed);

/* The rows of the list that the worker holds have failed. */
extern int64 tl_job_fail_list(TlJobCall *call, const TlJobList *list,
							  const TlJobFailure *failure);

/* Jobs of these rows are no longer claimed: let the next of their keys go. */
extern void tl_job_note_freed(TlJobTableInfo *info, const TlJobRow *rows,
							  int n);

/*
 * n rows that the worker has are given up because their attempts are spent.
 * To be reserved.
 */
extern void tl_job_note_given_up(TlJobCall *call, int64 n);

#endif							/* TOKENLOCK_JOB_FINISH_H */
