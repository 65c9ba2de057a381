/*-------------------------------------------------------------------------
 *
 * jobs.c
 *	  What loading the library has to do for jobs.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job_plan.h"
#include "job_position.h"
#include "job_worker.h"
#include "jobs.h"

void
tl_jobs_init(void)
{
	tl_position_init();
	tl_worker_init();
	tl_plan_init();
}
