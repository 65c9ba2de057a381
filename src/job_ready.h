/*-------------------------------------------------------------------------
 *
 * job_ready.h
 *	  Are there jobs to be claimed, and when will there be?
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_READY_H
#define TOKENLOCK_JOB_READY_H

#include "job_table.h"

/*
 * Would a new worker's claim find something?  Nothing is locked, so another
 * one may be quicker.
 */
extern bool tl_job_ready(TlJobTableInfo *info);

/*
 * When does the next job come due that was not yet at that time?  TL_NEVER if
 * none does.
 */
extern TlTime tl_job_next_due(TlJobTableInfo *info, TimestampTz since);

#endif							/* TOKENLOCK_JOB_READY_H */
