/*-------------------------------------------------------------------------
 *
 * job_look.c
 *	  The look behind: finding what no claimer would come across.
 *
 * Rows can become ready behind the position without our knowing: a smaller id
 * is committed late, somebody sets a row back by hand.  And there may be
 * claimed rows of sids that shared memory has never heard of: after a crash,
 * in a restored dump.  Both are found by reading the table, page by page.
 *
 * After the first round most pages need not be read.  All that can be new in
 * a round was hidden in the last one because its transaction was running, or
 * was written later; either way the page was changed by a transaction that
 * was not over when the last round began.  So we remember moments, pairs of a
 * WAL position and the next transaction id: transactions from that id on have
 * written behind that position only.  The newest such moment with an id up to
 * the oldest one that ran when the last round began gives the LSN up to which
 * pages have nothing new.  To look at the LSN of a page costs little compared
 * with looking at its rows, or at the entries of an index, and it does not
 * matter how many dead rows an old snapshot keeps.
 *
 * What is found is a hint: an island for ready rows, a worker's record for
 * claimed ones.  The statements decide everything again.  So rows are compared
 * with the column's values byte for byte, without calling their types'
 * functions with a page locked.
 *
 * A slice takes about TL_SLICE of computing, and slices at most one part in
 * TL_SHARE of the time, for all claimers together, so the look costs the same
 * in large tables as in small ones and only takes longer to come around.
 *
 * Locks: a page, shared, while its rows are looked at; none of ours then.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "clock.h"
#include "job_look.h"
#include "job_position.h"
#include "job_turn.h"
#include "job_worker.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define TL_SLICE		2000	/* us */
#define TL_SHARE		10
#define TL_SHARE_SHORT	2		/* when the caller has nothing else to do */
#define TL_ROUND		(1000 * 1000)	/* rounds begin no faster, in us */
#define TL_BUSY			(10 * 1000 * 1000)	/* by then a slice has died */

/* Tables up to this size are looked at completely by a short answer. */
#define TL_SMALL_PAGES	64

/* Islands that a slice adds at most; some room is left for others. */
#define TL_NEW_ISLANDS	4
#define TL_ENOUGH_READY	1000

typedef struct TlClaimedRow
{
	Datum		sid;
	bool		no_sid;
	TlPoint		id;
} TlClaimedRow;

/* One slice. */
typedef struct TlLook
{
	TlJobTableInfo *info;
	TlLookState state;
	TlPoint		position;		/* ready rows up to here are of interest */
	Snapshot	snapshot;
	TlTime		started;
	int64		cpu_started;
	TlTime		page_read;		/* no row was looked at before */

	/* columns in the table that is being read */
	AttrNumber	id;
	AttrNumber	status;
	AttrNumber	sid;
	AttrNumber	turn;			/* 0 if there is no key column */

	/* what was found */
	bool		unknown_key;	/* a row whose key is too long to be noted */
	TlPoint    *ready;
	Datum	   *turns;			/* values of the key column of the latter, */
	bool	   *has_turn;		/* where there is one */
	int			nready;
	int			nbehind;		/* of these, known to be behind the position */
	bool		new_turn;		/* of a key that nobody knew to have some */
	TlClaimedRow *claimed;		/* of one page */
	int			nclaimed;
	List	   *doubtful;		/* rows of it whose status may be written in
								 * another way */
} TlLook;

static TlTime next_slice(const TlLookState *state, int share);
static bool is_due(const TlLookState *state, TlTime now, bool short_answer,
				   bool small);
static void begin_round(TlLookState *state, const TlLook *look);
static void end_round(TlLookState *state);
static bool run_slice(TlLook *look, bool whole);
static bool look_from_start(TlJobTableInfo *info, bool short_answer);
static bool look_at_leaf(TlLook *look, Relation rel, bool whole);
static void look_at_page(TlLook *look, Relation rel, Buffer buffer);
static void look_at_row(TlLook *look, TupleDesc desc, HeapTuple tuple);
static void look_at_doubtful(TlLook *look, TupleDesc desc);
static void note_row(TlLook *look, TupleDesc desc, HeapTuple tuple,
					 bool ready);
static void note_claimed(TlLook *look);
static void keep_behind(TlLook *look);
static bool note_ready(TlLook *look);

/*
 * Time that this process has worked, in microseconds.  Slices are measured by
 * it, as on a busy machine the clock also counts the others' work.
 */
static int64
cpu_time(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) != 0)
		return tl_now();
	return (int64) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000;
}

/* Is the table small enough to be looked at as a whole? */
static bool
is_small(TlJobTableInfo *info)
{
	BlockNumber pages = 0;
	ListCell   *cell;

	if (list_length(info->leaves) > 8)
		return false;
	foreach(cell, info->leaves)
	{
		Relation	rel = table_open(lfirst_oid(cell), AccessShareLock);

		pages += RelationGetNumberOfBlocks(rel);
		table_close(rel, NoLock);
	}
	return pages <= TL_SMALL_PAGES;
}

bool
tl_look_behind(TlJobTableInfo *info, bool short_answer)
{
	TlLook		look = {.info = info};
	TlJobPlace	place;
	MemoryContext context;
	MemoryContext oldcontext;
	bool		small;
	bool		finished;
	bool		found;

	if (!info->heap)
		return look_from_start(info, short_answer);
	small = short_answer && is_small(info);
	look.started = tl_now();
	look.cpu_started = cpu_time();

	/* the position first, then the snapshot: see look_at_row */
	if (!tl_position_begin_look(info, look.started + TL_BUSY, &look.state,
								&place))
		return false;
	if (!is_due(&look.state, look.started, short_answer, small))
	{
		tl_position_end_look(info, &look.state);
		return false;
	}
	look.position = place.position;

	context = AllocSetContextCreate(CurrentMemoryContext,
									"tokenlock look behind",
									ALLOCSET_DEFAULT_SIZES);
	oldcontext = MemoryContextSwitchTo(context);
	look.snapshot = RegisterSnapshot(GetLatestSnapshot());
	if (small)
	{
		look.state.leaf = 0;
		look.state.block = 0;
	}
	finished = run_slice(&look, small);
	UnregisterSnapshot(look.snapshot);
	found = note_ready(&look);
	if (finished)
		end_round(&look.state);
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);

	look.state.slice_ended = tl_now();
	look.state.slice_took = cpu_time() - look.cpu_started;
	look.state.next = next_slice(&look.state, TL_SHARE);
	tl_position_end_look(info, &look.state);
	return found;
}

/* When to go on, if slices are to take one part of so many of the time? */
static TlTime
next_slice(const TlLookState *state, int share)
{
	TlTime		next = state->slice_ended + state->slice_took * (share - 1);

	if (state->leaf == 0 && state->block == 0 && state->known)
		next = Max(next, state->round_started + TL_ROUND);
	return next;
}

static bool
is_due(const TlLookState *state, TlTime now, bool short_answer, bool small)
{
	return small ||
		now >= next_slice(state, short_answer ? TL_SHARE_SHORT : TL_SHARE);
}

static void
begin_round(TlLookState *state, const TlLook *look)
{
	Snapshot	snapshot = look->snapshot;
	TlLookSample now;
	TransactionId next;
	uint32		age;

	/* in this order: who gets an id later has not written yet */
	now.lsn = GetXLogInsertRecPtr();
	now.xid = ReadNextFullTransactionId();

	/* before the snapshot, for those who ask what it must have seen */
	state->round_started = look->started;
	state->dirty = false;
	next = XidFromFullTransactionId(now.xid);
	age = TransactionIdPrecedes(snapshot->xmin, next) ?
		next - snapshot->xmin : 0;
	state->xmin =
		FullTransactionIdFromU64(U64FromFullTransactionId(now.xid) - age);

	/*
	 * With a transaction that runs for very long it is the old samples that
	 * matter, so when there is no room the newest goes.
	 */
	if (state->nsamples == TL_LOOK_SAMPLES)
		state->nsamples--;
	state->samples[state->nsamples++] = now;
}

static void
end_round(TlLookState *state)
{
	int			best = -1;

	state->leaf = 0;
	state->block = 0;
	if (state->dirty)
		return;
	state->known = true;
	for (int i = 0; i < state->nsamples; i++)
		if (FullTransactionIdPrecedesOrEquals(state->samples[i].xid,
											  state->xmin))
			best = i;
	if (best < 0)
		return;
	state->unchanged = state->samples[best].lsn;

	/* the oldest transaction only gets younger: older ones are of no use */
	memmove(state->samples, state->samples + best,
			sizeof(TlLookSample) * (state->nsamples - best));
	state->nsamples -= best;
}

/*
 * Storage that we cannot read: let the claimers start from the beginning once
 * in a while.  Sids that are not known are not found there.
 */
static bool
look_from_start(TlJobTableInfo *info, bool short_answer)
{
	TlLookState state;
	TlJobPlace	place;
	TlTime		now = tl_now();
	bool		due;

	if (!short_answer ||
		!tl_position_begin_look(info, now + TL_BUSY, &state, &place))
		return false;
	due = now >= state.round_started + TL_ROUND && place.position.known;
	if (due)
		state.round_started = now;
	tl_position_end_look(info, &state);
	if (due)
		tl_position_forget(info->relation);
	return due;
}

/* Read on from where the last slice has ended.  Answers: to the end? */
static bool
run_slice(TlLook *look, bool whole)
{
	TlLookState *state = &look->state;
	List	   *leaves = look->info->leaves;

	look->ready = palloc(sizeof(TlPoint) * (TL_ENOUGH_READY +
											MaxHeapTuplesPerPage));
	look->turns = palloc(sizeof(Datum) * (TL_ENOUGH_READY +
										  MaxHeapTuplesPerPage));
	look->has_turn = palloc(sizeof(bool) * (TL_ENOUGH_READY +
											MaxHeapTuplesPerPage));
	look->claimed = palloc(sizeof(TlClaimedRow) * MaxHeapTuplesPerPage);
	if (state->leaf == 0 && state->block == 0)
		begin_round(state, look);

	while (state->leaf < list_length(leaves))
	{
		Relation	rel = table_open(list_nth_oid(leaves, state->leaf),
									 AccessShareLock);
		bool		finished;

		look->id = get_attnum(RelationGetRelid(rel), look->info->id.raw_name);
		look->status = get_attnum(RelationGetRelid(rel),
								  look->info->status.raw_name);
		look->sid = get_attnum(RelationGetRelid(rel),
							   look->info->sid.raw_name);
		look->turn = look->info->turn.attnum == InvalidAttrNumber ? 0 :
			get_attnum(RelationGetRelid(rel), look->info->turn.raw_name);
		finished = look_at_leaf(look, rel, whole);
		table_close(rel, NoLock);
		if (!finished)
			return false;
		state->leaf++;
		state->block = 0;
	}
	return true;
}

/* Read pages of one table until the slice is over: then answers false. */
static bool
look_at_leaf(TlLook *look, Relation rel, bool whole)
{
	TlLookState *state = &look->state;
	BlockNumber npages = RelationGetNumberOfBlocks(rel);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	bool		has_lsn = RelationNeedsWAL(rel);
	int			work = 0;

	while (state->block < npages)
	{
		Buffer		buffer = ReadBufferExtended(rel, MAIN_FORKNUM,
												state->block,
												RBM_NORMAL, strategy);

		work++;
		if (has_lsn && state->unchanged != InvalidXLogRecPtr &&
			BufferGetLSNAtomic(buffer) <= state->unchanged)
			ReleaseBuffer(buffer);
		else
		{
			look_at_page(look, rel, buffer);
			note_claimed(look);
			keep_behind(look);
			work += 15;
		}
		state->block++;

		/* there is room for what one more page can have */
		if (look->nready >= TL_ENOUGH_READY)
			break;
		if (work >= 64)
		{
			work = 0;
			CHECK_FOR_INTERRUPTS();
			if (!whole && cpu_time() >= look->cpu_started + TL_SLICE)
				break;
		}
	}
	FreeAccessStrategy(strategy);
	return state->block >= npages;
}

static void
look_at_page(TlLook *look, Relation rel, Buffer buffer)
{
	Page		page;
	OffsetNumber last;

	look->nclaimed = 0;
	look->page_read = tl_now();
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	last = PageGetMaxOffsetNumber(page);
	for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
	{
		ItemId		item = PageGetItemId(page, i);
		HeapTupleData tuple;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_tableOid = RelationGetRelid(rel);
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		ItemPointerSet(&tuple.t_self, BufferGetBlockNumber(buffer), i);
		if (HeapTupleSatisfiesVisibility(&tuple, look->snapshot, buffer))
			look_at_row(look, RelationGetDescr(rel), &tuple);
	}
	UnlockReleaseBuffer(buffer);
	look_at_doubtful(look, RelationGetDescr(rel));
}

/* What becomes of such a row will be seen in the next round. */
bool
tl_look_is_passing(HeapTupleHeader tuple)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(tuple);

	/* a multitransaction is mostly one of foreign keys, which only share */
	if ((tuple->t_infomask & HEAP_XMAX_INVALID) ||
		(tuple->t_infomask & HEAP_XMAX_IS_MULTI) ||
		HEAP_XMAX_IS_KEYSHR_LOCKED(tuple->t_infomask))
		return false;
	if (TransactionIdIsInProgress(xmax))
		return true;
	return !HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask) &&
		TransactionIdDidCommit(xmax);
}

bool
tl_look_is_free(Oid relation, ItemPointer tid)
{
	Relation	rel = table_open(relation, AccessShareLock);
	HeapTupleData tuple;
	Buffer		buffer;
	bool		free = false;

	tuple.t_self = *tid;
	if (heap_fetch(rel, SnapshotAny, &tuple, &buffer, false))
	{
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		free = !tl_look_is_passing(tuple.t_data);
		UnlockReleaseBuffer(buffer);
	}
	table_close(rel, NoLock);
	return free;
}

static bool
same_status(TlLook *look, Datum value, TlJobStatus status)
{
	TlJobColumn *column = &look->info->status;
	Datum		wanted = look->info->statuses[status];

	if (column->len != -1)
		return datumIsEqual(value, wanted, column->byval, column->len);
	if (VARATT_IS_EXTERNAL(DatumGetPointer(value)) ||
		VARATT_IS_COMPRESSED(DatumGetPointer(value)))
		return false;
	return tl_value_same(value, wanted, -1, false);
}

/* Copy the value of a ready row's key column.  False when it has none. */
static bool
note_turn(TlLook *look, TupleDesc desc, HeapTuple tuple)
{
	TlKeyType  *type = &look->info->turn_type;
	bool		isnull = look->turn == 0;
	Datum		value = isnull ? (Datum) 0 :
		heap_getattr(tuple, look->turn, desc, &isnull);

	/* one that is stored elsewhere has to do with an island */
	if (!isnull && type->len == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(value)))
		isnull = true;
	look->has_turn[look->nready] = !isnull;
	if (!isnull)
		look->turns[look->nready] = datumCopy(value, type->byval, type->len);
	return !isnull;
}

/*
 * With the page locked.  A ready row is of interest if it is behind the
 * position as it was before the snapshot: then no claimer on its way there is
 * going to find it.  Who has just passed it has locked it.
 */
static void
look_at_row(TlLook *look, TupleDesc desc, HeapTuple tuple)
{
	bool		isnull;
	Datum		status = heap_getattr(tuple, look->status, desc, &isnull);
	bool		ready;
	bool		doubtful = false;

	if (isnull)
		return;
	ready = same_status(look, status, TL_JOB_READY);
	if (!ready && !same_status(look, status, TL_JOB_CLAIMED))
	{
		if (look->info->status_by_image ||
			same_status(look, status, TL_JOB_DONE))
			return;
		doubtful = true;
	}
	if ((ready && !look->position.known) || tl_look_is_passing(tuple->t_data))
		return;
	if (doubtful)
		look->doubtful = lappend(look->doubtful, heap_copytuple(tuple));
	else
		note_row(look, desc, tuple, ready);
}

/* The page being unlocked, compare by the type's own function. */
static void
look_at_doubtful(TlLook *look, TupleDesc desc)
{
	TlJobTableInfo *info = look->info;
	ListCell   *cell;

	foreach(cell, look->doubtful)
	{
		HeapTuple	tuple = lfirst(cell);
		bool		isnull;
		Datum		status = heap_getattr(tuple, look->status, desc, &isnull);
		bool		is[TL_JOB_CLAIMED + 1];

		for (int i = TL_JOB_READY; i <= TL_JOB_CLAIMED; i++)
			is[i] = DatumGetBool(FunctionCall2Coll(&info->status_equal,
												   info->status_collation,
												   status, info->statuses[i]));
		if (is[TL_JOB_READY] ? look->position.known : is[TL_JOB_CLAIMED])
			note_row(look, desc, tuple, is[TL_JOB_READY]);
	}
	list_free_deep(look->doubtful);
	look->doubtful = NIL;
}

static void
note_row(TlLook *look, TupleDesc desc, HeapTuple tuple, bool ready)
{
	TlKeyType  *key = &look->info->key;
	bool		isnull;
	Datum		id;
	TlPoint		point;

	id = heap_getattr(tuple, look->id, desc, &isnull);
	if (tl_point_needs_detoast(key, id))
		point.known = false;
	else
		tl_point_set(&point, key, id);
	if (ready)
	{
		if (!note_turn(look, desc, tuple) && !point.known)
			look->unknown_key = true;
		else
			look->ready[look->nready++] = point;
	}
	else
	{
		TlJobColumn *column = &look->info->sid;
		Datum		sid = heap_getattr(tuple, look->sid, desc, &isnull);
		TlClaimedRow *row = &look->claimed[look->nclaimed];

		if (!isnull && column->len == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(sid)))
			return;
		row->no_sid = isnull;
		if (!isnull)
			row->sid = datumCopy(sid, column->byval, column->len);
		row->id = point;
		look->nclaimed++;
	}
}

/* Tell workers' records what they hold, the page being unlocked. */
static void
note_claimed(TlLook *look)
{
	TlJobTableInfo *info = look->info;
	TlTime		first_lapse = TL_NEVER;

	for (int i = 0; i < look->nclaimed; i++)
	{
		TlClaimedRow *row = &look->claimed[i];
		TlTime		expires;
		TlKey		key;

		if (row->no_sid)
			tl_job_no_sid_key(info, &key);
		else if (!tl_job_sid_key(info, row->sid, &key))
			continue;
		if (!tl_worker_found(&key, &row->id, &info->key, look->page_read,
							 info->ttl, &expires))
			look->state.dirty = true;
		first_lapse = Min(first_lapse, expires);
	}
	look->nclaimed = 0;
	if (first_lapse != TL_NEVER)
		tl_position_note_lapse(info->relation, first_lapse);
}

/*
 * Of the ready rows that a page has added, keep those behind the position.
 * Where there are keys, those are kept.
 */
static void
keep_behind(TlLook *look)
{
	int			n = look->nbehind;
	TlTurnRow  *turns;
	int			nturns = 0;

	if (look->nready == n)
		return;
	turns = palloc(sizeof(TlTurnRow) * (look->nready - n));
	for (int i = n; i < look->nready; i++)
	{
		TlTurnRow  *turn;

		if (look->ready[i].known &&
			tl_point_compare(&look->ready[i], &look->position,
							 &look->info->key) > 0)
			continue;
		if (!look->has_turn[i])
		{
			look->ready[n++] = look->ready[i];
			continue;
		}
		turn = &turns[nturns++];
		turn->value = look->turns[i];
		turn->hash = tl_turn_hash(look->info, &turn->value, false);
	}
	look->nready = look->nbehind = n;
	if (nturns > 0 && tl_turn_note_rows(look->info, turns, nturns, true))
		look->new_turn = true;
	pfree(turns);
}

static int
compare_points(const void *a, const void *b, void *type)
{
	return tl_point_compare(a, b, type);
}

/* Make islands of the ready rows that lie behind the position. */
static bool
note_ready(TlLook *look)
{
	TlKeyType  *key = &look->info->key;
	int			n = look->nready;
	int			room;
	int			step;

	if (look->unknown_key)
	{
		tl_position_forget(look->info->relation);
		return true;
	}
	if (n == 0)
		return look->new_turn;

	room = Min(tl_position_island_room(look->info) - TL_NEW_ISLANDS,
			   TL_NEW_ISLANDS);
	if (room <= 0)
	{
		/* there is enough to do: find these again in the next round */
		look->state.dirty = true;
		return true;
	}
	qsort_arg(look->ready, n, sizeof(TlPoint), compare_points, key);
	step = (n + room - 1) / room;
	for (int i = 0; i < n; i += step)
	{
		TlRange		range;

		range.lo = look->ready[i];
		range.hi = look->ready[Min(i + step, n) - 1];
		tl_position_add_island(look->info->relation, &range, &key->stamp);
	}
	return true;
}
