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

#endif							/* TOKENLOCK_JOB_CLAIM_H */
