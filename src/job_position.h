/*-------------------------------------------------------------------------
 *
 * job_position.h
 *	  Where claimers of a job table start to look for ready rows.
 *
 * All of it is a hint.  The statements decide what is handed out; what a
 * wrong hint can do is to let a row wait until the look behind finds it.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_POSITION_H
#define TOKENLOCK_JOB_POSITION_H

#include "job_line.h"
#include "job_table.h"

#include "access/transam.h"
#include "access/xlogdefs.h"
#include "storage/block.h"

#define TL_ISLANDS			16
#define TL_LOOK_SAMPLES		8

/* A range behind the position where ready rows may be. */
typedef struct TlIsland
{
	uint64		serial;			/* new with each change */
	bool		behind_lo;		/* lo itself does not belong to it any more */
	TlRange		range;
} TlIsland;

/* A moment: transactions from xid on write behind lsn only. */
typedef struct TlLookSample
{
	XLogRecPtr	lsn;
	FullTransactionId xid;
} TlLookSample;

/*
 * TlLookState: how far the look behind has come (job_look.c).  It reads the
 * table's pages round after round, one slice at a time, one claimer at a time.
 */
typedef struct TlLookState
{
	bool		known;			/* a round has been completed */
	bool		dirty;			/* this round has left something out */
	int			leaf;			/* next page: table, */
	BlockNumber block;			/* and number; both 0: begin a round */
	TlTime		busy_until;		/* somebody looks, at most until then */
	TlTime		round_started;
	TlTime		slice_ended;
	TlTime		slice_took;
	TlTime		next;			/* not to be continued before, by claims that
								 * have all they want */
	XLogRecPtr	unchanged;		/* pages up to this LSN need not be read */
	FullTransactionId xmin;		/* oldest that ran when the round began */
	int			nsamples;
	TlLookSample samples[TL_LOOK_SAMPLES];	/* oldest first */
} TlLookState;

/* What has happened to a table's jobs since the server started. */
typedef enum TlJobEvent
{
	TL_JOBS_CLAIMED,			/* handed out by claims that committed */
	TL_JOBS_FINISHED,			/* and finished so */
	TL_JOBS_TAKEN,				/* of those claimed, from dead workers */
	TL_JOBS_AGAIN				/* handed out again to who had them */
} TlJobEvent;

#define TL_JOB_EVENT_COUNT	(TL_JOBS_AGAIN + 1)

/*
 * TlTurns: the turns of a job table with a key column (job_turn.c).  Their
 * memory only grows, and is freed with the table's entry.
 */
typedef struct TlTurns
{
	dsa_pointer memory;			/* buckets, then places for turns */
	int			capacity;		/* of both; 0: there is no memory yet */
	int			n;				/* turns that there are */
	int			fresh;			/* places from here on were never used */
	int			unused;			/* first of those that are free again; -1 */
	int			owned;			/* turns that somebody has, or may have */
	int			prepared;		/* of these, those of prepared transactions */
	int			first;			/* those to be offered; -1: none */
	int			last;
	int			hand;			/* where looking after held ones goes on */
	bool		positions;		/* the table's claimers start at a position */
	bool		forget;			/* the table began anew */
} TlTurns;

/*
 * TlJobTable: one job table.  Made by its first claim; removed by a sweep
 * when it has not been used for long.  Covered by the partition lock of the
 * hash table, under which no two keys are compared: that may run user code.
 * So who wants to change something after a comparison notes the epoch and
 * version first and gives up if they have changed.
 */
typedef struct TlJobTable
{
	TlKey		key;
	TlJobStamp	stamp;			/* what the points in it go by */
	uint64		epoch;			/* changes when the position is forgotten */
	uint64		version;		/* changes with the position */
	TlPoint		position;		/* handed out up to here; unknown: start */
	int			nislands;
	TlIsland	islands[TL_ISLANDS];
	TlTime		next_lapse;		/* no worker with rows lapses before */
	TlTime		used;			/* last claim */
	uint64		events[TL_JOB_EVENT_COUNT];
	TlLookState look;
	TlJobLine	line;			/* who waits for jobs */
	TlTurns		turns;
} TlJobTable;

/* What a claimer reads. */
typedef struct TlJobPlace
{
	uint64		epoch;
	uint64		version;
	TlPoint		position;
	int			nislands;		/* look at these first */
	TlIsland	islands[TL_ISLANDS];
	bool		known;			/* all of the table has been looked at */
	TlTime		look_next;		/* TlLookState.next */
	TlTime		next_lapse;
	bool		waiters;		/* there are some */
} TlJobPlace;

/* Called from _PG_init. */
extern void tl_position_init(void);

/*
 * Lock a table's entry, and unlock it.  NULL when there is none, unless with
 * tl_position_enter, which makes one.
 */
extern TlJobTable *tl_position_lock(Oid relation);
extern TlJobTable *tl_position_enter(TlJobTableInfo *info);
extern void tl_position_unlock(TlJobTable *table);

/* Read the place to start at, and note that a lease ends at "lapse". */
extern void tl_position_read(TlJobTableInfo *info, TlTime lapse,
							 TlJobPlace *place);

/* Rows up to here were handed out: those who come next start behind them. */
extern void tl_position_advance(TlJobTableInfo *info, const TlJobPlace *place,
								const TlPoint *last);

/* An island was looked at: up to "last", or (NULL) to its end. */
extern void tl_position_island_done(TlJobTableInfo *info, uint64 serial,
									const TlPoint *last);

/*
 * Ready rows may be in this range.  An unknown range, or one too many, makes
 * claimers start from the beginning once.  Cannot fail.
 */
extern void tl_position_add_island(Oid relation, const TlRange *range,
								   const TlKeyStamp *stamp);

/* Start from the beginning.  Cannot fail. */
extern void tl_position_forget(Oid relation);

/* The same for all tables of this database, and have those look who wait. */
extern void tl_position_forget_all(void);

/* A worker with rows may lapse at that time. */
extern void tl_position_note_lapse(Oid relation, TlTime lapse);

/*
 * Begin to go through the workers: false when none can have lapsed by now.
 * To be followed by tl_position_note_lapse with what was found.
 */
extern bool tl_position_begin_lapses(Oid relation, TlTime now);

/*
 * The look behind: get its state, if nobody else is looking, and put it back.
 * The state is kept only if the position was not forgotten in between; the
 * place says where the position was.
 */
extern bool tl_position_begin_look(TlJobTableInfo *info, TlTime until,
								   TlLookState *look, TlJobPlace *place);
extern void tl_position_end_look(TlJobTableInfo *info, TlLookState *look);

/* Count n of something.  Cannot fail. */
extern void tl_position_count(Oid relation, TlJobEvent event, int64 n);

/* What tl_position_forget does to a table's entry, which is locked. */
extern void tl_position_forget_locked(TlJobTable *table);

/* Call a function with each job table of this database, locked to be read. */
typedef void (*TlJobTableVisitor) (const TlJobTable *table, void *arg);
extern void tl_position_visit(TlJobTableVisitor visit, void *arg);

/* How many more islands there is room for. */
extern int	tl_position_island_room(TlJobTableInfo *info);

#endif							/* TOKENLOCK_JOB_POSITION_H */
