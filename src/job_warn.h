/*-------------------------------------------------------------------------
 *
 * job_warn.h
 *	  What a claim warns of.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_WARN_H
#define TOKENLOCK_JOB_WARN_H

#include "job_finish.h"

/*
 * Rows that the worker has were handed to it again: warn, once in its lease,
 * when another session that is still there got rows for it last.
 */
extern void tl_job_warn_shared(const TlJobCall *call);

/*
 * A claim that has handed out n rows is about to end: warn, once in the
 * session, when it had to read very much for lack of an index.
 */
extern void tl_job_warn_index(TlJobTableInfo *info, int64 n);

#endif							/* TOKENLOCK_JOB_WARN_H */
