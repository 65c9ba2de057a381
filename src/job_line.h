/*-------------------------------------------------------------------------
 *
 * job_line.h
 *	  The sessions that wait for jobs of one table.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_LINE_H
#define TOKENLOCK_JOB_LINE_H

#include "tokenlock.h"

/*
 * TlJobLine: who waits for jobs of a table, a part of its TlJobTable and
 * covered by the same lock, as is the record of each waiter (TlJobWaiter), in
 * the slot of its process.  The line's order is that of arrival.
 *
 * Whatever may have made jobs ready is a call, which has a number.  It wakes
 * one waiter that has not looked since.  The first of the line also looks when
 * the clock says so, on behalf of all.
 */
typedef struct TlJobLine
{
	int			first;			/* process numbers; -1: none */
	int			last;
	int			waiting;		/* how many */
	uint64		calls;			/* number of the last call */
	TlTime		last_call;		/* when that was, clock's calls left out */
	TlTime		last_look;		/* when a waiter began to look */
	TlTime		next_look;		/* by the clock */
} TlJobLine;

typedef struct TlJobWaiter
{
	int			previous;
	int			next;
	bool		looking;		/* at the table; else it sleeps */
	bool		woken;			/* to look (once more) */
	uint64		seen;			/* number of the last call before its look */
} TlJobWaiter;

/*
 * All of these are called with the line locked, and cannot fail.
 */

extern void tl_job_line_init(TlJobLine *line);

/* Let this process stand in line, about to look; and leave. */
extern void tl_job_line_add(TlJobLine *line);
extern void tl_job_line_remove(TlJobLine *line);

/* This process's record, while it is in a line. */
extern TlJobWaiter *tl_job_line_me(void);
extern bool tl_job_line_is_first(const TlJobLine *line);

/* Jobs may have become ready: have a waiter look. */
extern void tl_job_line_call(TlJobLine *line);

/* The last call may be good for one more waiter. */
extern void tl_job_line_hand_on(TlJobLine *line);

/* Have the first one find out anew when to look. */
extern void tl_job_line_poke(TlJobLine *line);

/* The line is to be looked for at that time, if not sooner. */
extern void tl_job_line_look_at(TlJobLine *line, TlTime when);

#endif							/* TOKENLOCK_JOB_LINE_H */
