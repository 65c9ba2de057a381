/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  Counting what happens to tokens.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_STATS_H
#define TOKENLOCK_STATS_H

#include "shmem.h"

/* What is counted. */
typedef enum TlEvent
{
	TL_EVENT_GET,				/* requests */
	TL_EVENT_GRANT,				/* granted anew */
	TL_EVENT_REFUSAL,			/* not granted */
	TL_EVENT_WAIT,				/* had to wait */
	TL_EVENT_WAIT_TIME,			/* how long, in microseconds */
	TL_EVENT_TIMEOUT,			/* waited in vain */
	TL_EVENT_EXPIRY,			/* leases that lapsed */
	TL_EVENT_PUT,				/* given back, by whatever way */
	TL_EVENT_BREAK				/* ended by token_break */
} TlEvent;

#define TL_EVENT_COUNT	(TL_EVENT_BREAK + 1)

/*
 * TlNameStats: the counters of one of the busiest names.  Covered by the
 * partition lock of the hash table.  Made at the end of a transaction that
 * used the name; the least used go when there are too many.
 */
typedef struct TlNameStats
{
	TlKey		key;
	uint64		counts[TL_EVENT_COUNT];
	TlTime		longest_wait;
	TlTime		longest_hold;
	uint64		usage;			/* gets, halved at times: who goes first */
} TlNameStats;

/* Called from _PG_init. */
extern void tl_stats_init(void);

/* Begin and end counting for this session. */
extern void tl_stats_begin(void);
extern void tl_stats_end(void);

/* Make room for counting this name; to be called without locks. */
extern void tl_stats_prepare(const TlKey *key);

/* Count events.  Callable anywhere: it changes this session's memory only. */
extern void tl_stats_count(const TlKey *key, TlEvent event, uint64 amount);
extern void tl_stats_waited(const TlKey *key, TlTime time);
extern void tl_stats_ended(const TlKey *key, TlEvent how, TlTime held);

/*
 * Publish what was counted by name.  Before the commit names may be added;
 * later, with only_known, nothing is allocated.
 */
extern void tl_stats_publish(bool only_known);

/* The totals of this database. */
extern void tl_stats_read(uint64 *totals);

/* A copy of the counters by name of this database. */
extern TlNameStats *tl_stats_names(int *n);

/* Remove the names of a database that was dropped. */
extern void tl_stats_purge(Oid database);

#endif							/* TOKENLOCK_STATS_H */
