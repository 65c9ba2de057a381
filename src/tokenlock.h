/*-------------------------------------------------------------------------
 *
 * tokenlock.h
 *	  Limits, basic types and settings that every file of tokenlock needs.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_TOKENLOCK_H
#define TOKENLOCK_TOKENLOCK_H

/* Longest token name, owner or sid, in bytes. */
#define TL_NAME_MAX		255

/*
 * A point in time or a length of time in microseconds.  Points are read from
 * the boot-time clock (clock.h), which no step of the wall clock moves.
 */
typedef int64 TlTime;

/* The end of what has no end: an untimed grant, an unbounded wait. */
#define TL_NEVER		PG_INT64_MAX

/* Settings */
extern int	tl_memory;			/* tokenlock.memory, kB */
extern int	tl_default_ttl;		/* tokenlock.default_ttl, ms */
extern int	tl_grace;			/* tokenlock.grace, ms */
extern int	tl_job_ttl;			/* tokenlock.job_ttl, ms */
extern bool tl_session_tokens;	/* tokenlock.session_tokens */

#endif							/* TOKENLOCK_TOKENLOCK_H */
