/*-------------------------------------------------------------------------
 *
 * job_table.h
 *	  Job tables as this backend knows them: their columns, and the statements
 *	  that read and change them.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_TABLE_H
#define TOKENLOCK_JOB_TABLE_H

#include "job_key.h"
#include "job_settings.h"
#include "shmem.h"

#include "executor/spi.h"
#include "storage/itemptr.h"
#include "storage/lock.h"

/* A column of a job table, in terms of its base type. */
typedef struct TlJobColumn
{
	AttrNumber	attnum;
	char	   *name;			/* quoted, behind the alias */
	char	   *target;			/* quoted, alone */
	char	   *raw_name;
	Oid			type;
	int32		typmod;
	int16		len;
	bool		byval;
	char	   *type_name;		/* qualified */
	char	   *cut_type_name;	/* a cast to it cuts what is too long */
	char	   *equals;			/* OPERATOR(..) of equality */
	FmgrInfo	input;
	Oid			input_param;
	FmgrInfo	output;
} TlJobColumn;

/* What a job can be. */
typedef enum TlJobStatus
{
	TL_JOB_READY,
	TL_JOB_CLAIMED,
	TL_JOB_DONE,
	TL_JOB_FAILED				/* literals has none where it was not set */
} TlJobStatus;

#define TL_JOB_STATUS_COUNT	(TL_JOB_FAILED + 1)

/* What is done to rows that are locked. */
typedef enum TlJobChange
{
	TL_CHANGE_CLAIM,			/* counts an attempt */
	TL_CHANGE_FINISH,
	TL_CHANGE_RELEASE,			/* back to ready, the attempt given back */
	TL_CHANGE_RECOVER,			/* back to ready, the attempt spent */
	TL_CHANGE_USED_UP			/* to failed, as all attempts are spent */
} TlJobChange;

#define TL_JOB_CHANGE_COUNT	(TL_CHANGE_USED_UP + 1)

typedef struct TlJobTableInfo TlJobTableInfo;

typedef struct TlJobPlan
{
	SPIPlanPtr	plan;			/* NULL: not prepared yet */
	int			generation;		/* of the plan that we had made */
	bool		may_sort;		/* what it reads need not be in order */
	const TlJobTableInfo *info; /* set by tl_plan_prepare_by_turn alone */
} TlJobPlan;

/* A plan for lists of ids of one array type. */
typedef struct TlJobListPlan
{
	Oid			array_type;
	TlJobPlan	lock;
	TlJobPlan	finish;
	struct TlJobListPlan *next;
} TlJobListPlan;

/*
 * What identifies a state of the table in which positions in it mean the
 * same.  A table that was truncated, or is to be read differently, begins
 * anew.
 */
typedef struct TlJobStamp
{
	TlKeyStamp	key;
	Oid			storage;		/* file number, or digest of the partitions */
	uint32		settings;		/* digest of what decides which rows are ready */
} TlJobStamp;

/* A column of the order in which jobs are handed out. */
typedef struct TlJobOrder
{
	AttrNumber	attnum;
	bool		desc;
	bool		nulls_first;
} TlJobOrder;

/* A job table.  Lives until the table is changed; not to be kept. */
struct TlJobTableInfo
{
	Oid			relation;		/* key of the backend's hash table */
	bool		valid;			/* no change of the table was heard of */
	LocalTransactionId retired_in;
	struct TlJobTableInfo *next_retired;
	MemoryContext context;

	Oid			row_type;
	char	   *name;			/* qualified and quoted */
	char	   *from;			/* the same as it stands in FROM, with alias */
	char	   *alias;
	bool		partitioned;
	bool		moving;			/* an update can move rows between partitions */
	bool		row_security;	/* has policies */
	bool		heap;			/* what the look behind can read */
	bool		sid_may_be_null;
	bool		strong_lock;	/* an update changes a key: lock for it */
	bool		keyed;			/* a row that is ready stays so, and the order
								 * is the key's: so there can be a position */
	bool		run_at_may_be_null;
	bool		paused;			/* nothing is handed out */
	bool		wake;			/* whatever is written to it fires the trigger
								 * that wakes waiters */
	TlTime		ttl;			/* of its workers; 0: tokenlock.job_ttl */
	Oid			key_index;		/* has the id first; InvalidOid: none does */
	TlJobColumn id;
	TlJobColumn status;
	TlJobColumn sid;
	TlJobColumn run_at;			/* attnum is 0 if there is none */
	char	   *order;			/* what stands behind ORDER BY */
	bool		own_order;		/* it is not the key's */
	TlJobOrder *order_columns;	/* the same in parts, each column once; the id
								 * is the last */
	int			norder;
	char	   *ready_when;		/* NULL if there is no condition */
	TlJobColumn attempts;		/* attnum is 0 if there is none */
	int64		max_attempts;	/* 0: no limit */
	TlJobColumn error;			/* attnum is 0 if there is none */
	TlJobColumn turn;			/* the key column: jobs that have the same in
								 * it take turns; attnum is 0 if there is none */
	TlKeyType	turn_type;		/* without comparison */
	FmgrInfo	turn_hash;
	Oid			turn_array_type;
	char	   *turn_greater;	/* operator of its order; NULL if it has none */
	char	   *turn_alias;		/* for one value of it, ... */
	char	   *turn_name;		/* ... as a column */
	TlKeyType	key;
	Oid			key_array_type;
	char	   *less_equal;		/* operators of the key's order */
	char	   *greater;
	char	   *greater_equal;
	bool		status_by_image;	/* equal values have the same bytes */
	FmgrInfo	status_equal;
	Oid			status_collation;
	Datum		statuses[TL_JOB_STATUS_COUNT];
	char	   *literals[TL_JOB_STATUS_COUNT];
	TlJobStamp	stamp;
	List	   *leaves;			/* oids of the tables that have the rows */

	TlJobPlan	find[3][3][2][2];	/* see TlJobFind: owned and no_sid, lower,
									 * upper, wait */
	TlJobPlan	count[2][2];	/* of no sid or one, with range or not */
	TlJobPlan	set[TL_JOB_CHANGE_COUNT];
	TlJobPlan	fail[2][2];		/* give up or not, retry_in or not */
	TlJobPlan	sort;
	TlJobPlan	peek[3][2];		/* job_ready.c: TlJobLower, upper */
	TlJobPlan	due;
	TlJobPlan	walk[3][2];		/* see TlJobFind: lower, upper */
	TlJobPlan	walk_turns;
	TlJobPlan	verify[2];		/* locking or not */
	TlJobPlan	heads;
	TlJobListPlan *lists;

	int64		pages_read;		/* by this claim, to find rows */
	bool		index_looked;	/* whether one is missing was asked for */
};

/*
 * Lock the table as an UPDATE does and return what is known of it.  Raises
 * the error if it cannot be claimed from, or the caller may not update it.
 */
extern TlJobTableInfo *tl_job_table(Oid relation);

/*
 * Find out about a table, in a memory context that is a child of the current
 * one (job_describe.c, and so are the following).
 */
extern TlJobTableInfo *tl_job_describe(Oid relation);

/* Raise the error of a relation that jobs cannot be in. */
extern void tl_job_check_kind(Oid relation);

/*
 * Raise the error that a claim would raise, with the settings as they are.
 * The caller must hold a lock on the table.
 */
extern void tl_job_table_check(Oid relation);

/* The column of a primary key that has only one; else InvalidAttrNumber. */
extern AttrNumber tl_job_primary_key(Oid relation);

/* Once in this session: whether to warn of a missing index of the table. */
extern bool tl_job_first_index_warning(Oid relation);

/* What settings are when the owner has said nothing; NULL: depends. */
extern const char *tl_job_default(TlJobSetting setting);

/* Does row security apply to the current role? */
extern bool tl_job_row_security(const TlJobTableInfo *info);

/*
 * The sid as the column has it, and the worker's key in shared memory.  Both
 * go through the column's type, so that what is found in the table is known
 * to be the same.
 */
extern Datum tl_job_sid(TlJobTableInfo *info, text *sid, TlKey *key);

/* The key of the worker that a sid from the table belongs to. */
extern bool tl_job_sid_key(TlJobTableInfo *info, Datum sid, TlKey *key);

/*
 * Rows that are claimed without a sid are one worker's.  No text can be what
 * stands for its name.
 */
extern void tl_job_no_sid_key(TlJobTableInfo *info, TlKey *key);
extern bool tl_job_is_no_sid(const TlKey *key);

/* Free the statements of a table that nobody uses any more (job_plan.c). */
extern void tl_job_free_plans(TlJobTableInfo *info);

/* A row that is locked. */
typedef struct TlJobRow
{
	ItemPointerData tid;		/* not used in partitioned tables */
	bool		used_up;		/* it may not be handed out any more */
	uint64		turn;			/* hash of the key column; 0: it has no key */
	Datum		turn_value;
	Datum		id;
} TlJobRow;

typedef struct TlJobRows
{
	TlJobRow   *rows;
	int			n;
	int			allocated;
} TlJobRows;

/*
 * Which rows to find: in the table's order, or, when locked ones are waited
 * for, in the key's.
 */
typedef enum TlJobLower
{
	TL_LOWER_NONE,
	TL_LOWER_FROM,				/* from this one on */
	TL_LOWER_BEHIND				/* behind this one */
} TlJobLower;

typedef struct TlJobFind
{
	bool		owned;			/* those that this sid has; else ready ones */
	bool		no_sid;			/* with "owned": those claimed without a sid */
	bool		wait;			/* for locked rows; else leave them out */
	Datum		sid;
	TlJobLower	lower;
	const TlPoint *lo;
	const TlPoint *hi;			/* up to this one; NULL: no end */
	int64		limit;			/* -1: none, and so it is when locked ones are
								 * waited for */
} TlJobFind;

/* How many pages this backend has looked into so far. */
extern int64 tl_job_pages_accessed(void);

/* Lock such rows, append them to *rows, and return how many they were. */
extern int64 tl_job_find(TlJobTableInfo *info, const TlJobFind *find,
						 TlJobRows *rows);

/* Put rows that are locked, from one to before another, in the table's order. */
extern void tl_job_sort(TlJobTableInfo *info, TlJobRows *rows, int from,
						int to);

/* Prepare the statements that depend on settings, to see whether they can be. */
extern void tl_job_check_statements(TlJobTableInfo *info);

/*
 * Names in ready_when mean the same for all callers, so a statement that has
 * it is prepared and run with a search_path of its own.  To be ended with what
 * the first one returned.
 */
extern int	tl_job_begin_path(const TlJobTableInfo *info);
extern void tl_job_end_path(int level);

/*
 * How many rows the sid, or with no_sid nobody, has claimed, in a range or
 * (NULL) at all.
 */
extern int64 tl_job_count(TlJobTableInfo *info, Datum sid, bool no_sid,
						  const TlRange *range);

/*
 * Change rows that are locked.  With a claim, the rows as they are then go to
 * *changed, in the order of *rows; those that a trigger has suppressed, or
 * given another status or sid, are not among them.  Returns how many there are.
 */
extern int64 tl_job_set(TlJobTableInfo *info, TlJobChange change, Datum sid,
						const TlJobRows *rows, HeapTupleHeader *changed);

/* How jobs fail. */
typedef struct TlJobFailure
{
	text	   *error;			/* NULL: none */
	bool		give_up;		/* do not try again */
	Interval   *retry_in;		/* NULL: longer with each attempt */
} TlJobFailure;

/*
 * Set rows that are locked to ready, due later, or to failed.  Returns how
 * many there are.
 */
extern int64 tl_job_fail(TlJobTableInfo *info, const TlJobFailure *failure,
						 const TlJobRows *rows);

/* Raise the error if the table has no value for failed jobs. */
extern void tl_job_require_failed(TlJobTableInfo *info);

/*
 * Set rows of the sid that are in a list of ids to done.  Returns how many
 * there were, and in *turns the hashes of their key column, if there is one.
 */
extern int64 tl_job_finish(TlJobTableInfo *info, Datum sid, Datum ids,
						   Oid array_type, uint64 **turns);

/* Lock those of a list of ids that the sid has, waiting if need be. */
extern int64 tl_job_find_listed(TlJobTableInfo *info, Datum sid, Datum ids,
								Oid array_type, TlJobRows *rows);

/*
 * Raise an error if there are ready rows that the caller may see but not
 * update (job_security.c).
 */
extern void tl_job_check_hidden(TlJobTableInfo *info);

/* The range of some rows, as shared memory keeps it. */
extern void tl_job_range(TlJobTableInfo *info, const TlJobRow *rows, int n,
						 TlRange *range);

/* The range of those that have no key; false if there is none. */
extern bool tl_job_range_without_turns(TlJobTableInfo *info,
									   const TlJobRow *rows, int n,
									   TlRange *range);

#endif							/* TOKENLOCK_JOB_TABLE_H */
