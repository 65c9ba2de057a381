/*-------------------------------------------------------------------------
 *
 * job_claim.h
 *	  Claiming jobs.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_CLAIM_H
#define TOKENLOCK_JOB_CLAIM_H

#include "job_finish.h"

/*
 * Claim up to "batch" rows for the worker whose call has begun: its own (with
 * resume), those of dead workers, ready ones.  *rows is set to the rows as
 * they are now, and the answer is how many they are.
 */
extern int64 tl_job_claim(TlJobCall *call, int64 batch, bool resume,
						  HeapTupleHeader **rows);

/*
 * A worker's sid as a value of the column, or none.  False when it is no value
 * of it any more: the column's type was changed since the worker claimed.  That
 * must not stop the claims of the others.
 */
extern bool tl_job_read_sid(TlJobTableInfo *info, const TlKey *worker,
							Datum *sid, bool *no_sid);

#endif							/* TOKENLOCK_JOB_CLAIM_H */
