/*-------------------------------------------------------------------------
 *
 * jobs.h
 *	  What loading the library has to do for jobs.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOBS_H
#define TOKENLOCK_JOBS_H

/* Called from _PG_init. */
extern void tl_jobs_init(void);

#endif							/* TOKENLOCK_JOBS_H */
