/*-------------------------------------------------------------------------
 *
 * job_claim.c
 *	  Claiming jobs: the worker's own, those of dead workers, ready ones.
 *
 * Rows are first locked, then noted in the worker's record, then changed.  The
 * record thus covers the rows before anybody can see them claimed.
 *
 * Locks: none of ours while statements run or keys are compared.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "job_claim.h"
#include "job_look.h"
#include "job_position.h"
#include "job_turn_find.h"
#include "job_wait.h"
#include "job_warn.h"
#include "job_xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/* Dead workers that one call takes rows from, at most. */
#define TL_MAX_DEAD		16

typedef struct TlClaim
{
	TlJobCall  *call;
	TlJobTableInfo *info;
	int64		batch;
	TlJobRows	rows;			/* locked so far */
	int			sources;		/* dead workers that rows were taken from */
	TlJobPlace	place;
	bool		use_position;	/* start behind it, and look at islands */
	bool		sees_all;		/* what this call finds is all there is, so it
								 * may move the position, and correct counts */
	TlTurnSearch turns;			/* where there is a key column */
	Datum		last;			/* id of the row that was looked at last */

	/* what was looked at to its end; islands that are older have no more */
	TlRange		searched;
	bool		searched_behind_lo;
	uint64		searched_serial;
} TlClaim;

static void find_own(TlClaim *claim);
static void find_lapsed(TlClaim *claim);
static void take_from(TlClaim *claim, const TlKey *dead);
static bool find_ready(TlClaim *claim);
static void find_in_island(TlClaim *claim);
static void sort_rows(TlClaim *claim, int from, int to);

static bool
has_turns(const TlJobTableInfo *info)
{
	return info->turn.attnum != InvalidAttrNumber;
}

static int64
remaining(const TlClaim *claim)
{
	return claim->batch - claim->rows.n;
}

static int64
claim_rows(TlJobCall *call, int64 batch, bool resume, HeapTupleHeader **rows)
{
	TlClaim		claim = {.call = call,.info = call->info,.batch = batch};
	bool		sees_rows;
	int			own;
	int			ready;
	int64		taken;
	int64		n;

	/*
	 * Who is shown only some of the rows must not lead others past the rest,
	 * nor take the islands away from them, nor count what a worker has.  A
	 * snapshot from the start of the transaction does not show all, either.
	 */
	sees_rows = !tl_job_row_security(call->info);
	claim.use_position = sees_rows && call->info->keyed;
	claim.sees_all = sees_rows && !IsolationUsesXactSnapshot();
	claim.turns = (TlTurnSearch)
	{
		.info = call->info,.sid = call->sid,.rows = &claim.rows,
			.batch = batch,.use_position = claim.use_position,
			.sees_rows = sees_rows,.sees_all = claim.sees_all
	};
	if (has_turns(call->info))
		claim.turns.call = tl_shmem_next_serial();
	tl_range_forget(&claim.searched);
	tl_position_read(call->info, call->state.expires, &claim.place);

	if (call->state.fresh && claim.place.known)
	{
		/* all there is in the table is known, and it has none of it */
		if (tl_worker_counted(&call->worker, call->state.version, 1, 0))
			call->state.inexact = false;
	}
	if (call->state.lapsed && !resume)
	{
		/* nobody would work on these any more, while the worker lives */
		tl_job_note_unreleased(&call->worker);
		tl_job_release_all(call, true);
	}
	else if (call->state.lapsed)
		tl_job_note_unreleased(&call->worker);
	if (batch == 0 || call->info->paused)
		return 0;

	if (resume)
		find_own(&claim);
	own = claim.rows.n;
	find_lapsed(&claim);
	ready = claim.rows.n;
	for (int tries = 0; remaining(&claim) > 0 && tries < 3; tries++)
		if (!find_ready(&claim))
			break;
	if (claim.rows.n == 0)
	{
		if (tl_job_row_security(claim.info))
			tl_job_check_hidden(claim.info);
		return 0;
	}
	if (!call->info->own_order)
	{
		sort_rows(&claim, own, ready);
		sort_rows(&claim, ready, claim.rows.n);
	}
	else if (claim.sources > 1)
		tl_job_sort(claim.info, &claim.rows, own, ready);

	taken = claim.rows.n - own;
	if (taken > 0)
	{
		TlRange		range;
		TlRange		replaced;
		bool		island;

		tl_job_range(claim.info, claim.rows.rows + own, taken, &range);
		tl_job_reserve();
		if (tl_worker_raise(&call->worker, taken, &range,
							tl_job_pending(&call->worker), &replaced,
							&claim.info->key))
			tl_job_note_replaced(&call->worker, &replaced);
		island = tl_job_range_without_turns(claim.info, claim.rows.rows + own,
											taken, &range);
		tl_job_note(TL_NOTE_CLAIMED, &call->worker, taken, &range,
					&claim.info->key);
		if (!island)
			tl_job_note_no_island();
	}

	*rows = MemoryContextAllocHuge(CurrentMemoryContext,
								   sizeof(HeapTupleHeader) * claim.rows.n);
	n = tl_job_set(claim.info, TL_CHANGE_CLAIM, call->sid, &claim.rows, *rows);

	/* what a trigger has suppressed stays as it was */
	if (taken > 0 && n < claim.rows.n)
		tl_job_note_fewer(&call->worker, Min(taken, claim.rows.n - n));
	if (taken > 0)
		tl_job_merge_note(&claim.info->key);
	if (own > 0)
	{
		tl_position_count(claim.info->relation, TL_JOBS_AGAIN, own);
		tl_job_warn_shared(call);
	}
	if (n > 0)
		tl_job_note_got(&call->worker);
	if (claim.place.waiters && remaining(&claim) == 0)
		tl_job_wait_hand_on(claim.info->relation);
	return n;
}

int64
tl_job_claim(TlJobCall *call, int64 batch, bool resume,
			 HeapTupleHeader **rows)
{
	int64		n;

	call->info->pages_read = 0;
	n = claim_rows(call, batch, resume, rows);
	tl_job_warn_index(call->info, n);
	return n;
}

static void
set_range(TlJobFind *find, const TlRange *range)
{
	if (range == NULL)
		return;
	find->lower = TL_LOWER_FROM;
	find->lo = &range->lo;
	find->hi = &range->hi;
}

/*
 * Rows, from one on, have been found.  Set those whose attempts are used up to
 * failed, and answer how many that were: if any, all have to be looked for
 * again, as there may be others in their place.
 */
static int64
fail_used_up(TlClaim *claim, int from)
{
	TlJobRows  *rows = &claim->rows;
	TlJobRows	used_up = {0};
	int			kept = from;
	int64		n;

	if (claim->info->max_attempts == 0)
		return 0;
	used_up.rows = MemoryContextAllocHuge(CurrentMemoryContext,
										  sizeof(TlJobRow) * (rows->n + 1));
	for (int i = from; i < rows->n; i++)
		if (rows->rows[i].used_up)
			used_up.rows[used_up.n++] = rows->rows[i];
		else
			rows->rows[kept++] = rows->rows[i];
	tl_job_note_freed(claim->info, used_up.rows, used_up.n);
	n = tl_job_set(claim->info, TL_CHANGE_USED_UP, claim->call->sid, &used_up,
				   NULL);

	/* those that a trigger does not let fail are not handed out either */
	rows->n = n > 0 ? from : kept;
	pfree(used_up.rows);
	return n;
}

/* The rows that the worker has already. */
static void
find_own(TlClaim *claim)
{
	TlJobCall  *call = claim->call;
	TlWorkerState state;
	const TlRange *range;
	int64		pending = tl_job_pending(&call->worker);
	int64		found;
	int64		given_up;
	TlJobFind	find = {.owned = true,.sid = call->sid,
	.limit = remaining(claim)};

	if (!tl_worker_look(&call->worker, &state))
		return;
	range = tl_worker_range(&state, &claim->info->key);
	if (state.inexact)
	{
		int64		n = tl_job_count(claim->info, call->sid, false, range);

		if (claim->sees_all)
			(void) tl_worker_counted(&call->worker, state.version, 1,
									 n + pending);
		if (n == 0)
			return;
	}
	else if (state.claimed <= pending)
		return;

	set_range(&find, range);
	do
	{
		tl_job_reserve();
		tl_job_find(claim->info, &find, &claim->rows);
		given_up = fail_used_up(claim, 0);
		tl_job_note_given_up(call, given_up);
		pending += given_up;
	} while (given_up > 0);
	found = claim->rows.n;
	if (claim->sees_all && !state.inexact && remaining(claim) > 0 &&
		found < state.claimed - pending)
	{
		/* deleted, or locked?  Count what is there. */
		int64		n = tl_job_count(claim->info, call->sid, false, range);

		(void) tl_worker_counted(&call->worker, state.version, 1, n + pending);
	}
}

/* The rows of workers whose lease has lapsed. */
static void
find_lapsed(TlClaim *claim)
{
	TlKey	   *dead;
	TlTime		next;
	TlTime		now;
	int			n;

	if (remaining(claim) == 0)
		return;
	now = tl_now();
	if (claim->place.next_lapse > now)
		return;

	/*
	 * Whoever goes through the workers says when to do so again.  Nothing in
	 * between can fail.
	 */
	dead = palloc(sizeof(TlKey) * TL_MAX_DEAD);
	if (!tl_position_begin_lapses(claim->info->relation, now))
		return;
	n = tl_worker_dead(claim->info->relation, dead, TL_MAX_DEAD, &next);
	tl_position_note_lapse(claim->info->relation, next);

	for (int i = 0; i < n && remaining(claim) > 0; i++)
		take_from(claim, &dead[i]);
	pfree(dead);
}

static void
take_from(TlClaim *claim, const TlKey *dead)
{
	TlJobTableInfo *info = claim->info;
	TlWorkerState state;
	TlJobFind	find = {.owned = true,.limit = remaining(claim)};
	int			before = claim->rows.n;
	int64		found;
	int64		given_up = 0;
	int64		n;
	const TlRange *range;

	if (!tl_worker_is_dead(dead, &state))
		return;
	range = tl_worker_range(&state, &info->key);
	if (state.inexact && state.claimed == 0 && range == NULL &&
		claim->place.known)
	{
		/* it called, but was not seen in the table */
		(void) tl_worker_counted(dead, state.version, 0, 0);
		return;
	}

	if (!tl_job_read_sid(info, dead, &find.sid, &find.no_sid))
	{
		/* what the column cannot hold is in no row */
		(void) tl_worker_counted(dead, state.version, 0, 0);
		return;
	}
	set_range(&find, range);
	do
	{
		tl_job_reserve();
		found = tl_job_find(info, &find, &claim->rows);

		/* it may have come back meanwhile: its rows are its own */
		if (found > 0 && !tl_worker_is_dead(dead, &(TlWorkerState) {0}))
		{
			claim->rows.n = before;
			return;
		}
		n = fail_used_up(claim, before);
		if (n > 0)
			tl_job_note(TL_NOTE_TAKEN, dead, n, NULL, &info->key);
		given_up += n;
	} while (n > 0);
	found = claim->rows.n - before;
	if (found > 0)
	{
		TlRange		taken;

		claim->sources++;
		tl_range_forget(&taken);
		if (range && !info->own_order)
		{
			taken.lo = range->lo;
			tl_point_set(&taken.hi, &info->key,
						 claim->rows.rows[claim->rows.n - 1].id);
		}
		tl_job_note(TL_NOTE_TAKEN, dead, found, &taken, &info->key);
	}
	if (remaining(claim) > 0 &&
		(state.inexact || found + given_up < state.claimed))
	{
		/* deleted, locked, or taken by others that have yet to commit? */
		if (claim->sees_all)
			(void) tl_worker_counted(dead, state.version, 0,
									 tl_job_count(info, find.sid, find.no_sid,
												  range) + given_up);
		if (found + given_up == 0)
			tl_worker_rest(dead);
	}
}

/*
 * Find ready rows that may be handed out.  Answers whether rows were looked
 * at, of which the last is claim->last.
 */
static bool
find_rows(TlClaim *claim, const TlJobFind *find)
{
	int			before = claim->rows.n;

	if (has_turns(claim->info))
	{
		int64		pages = tl_job_pages_accessed();
		bool		found = tl_turn_find_ready(&claim->turns, find,
											   &claim->last);

		claim->info->pages_read += tl_job_pages_accessed() - pages;
		return found;
	}
	do
		tl_job_find(claim->info, find, &claim->rows);
	while (fail_used_up(claim, before) > 0);
	if (claim->rows.n == before)
		return false;
	claim->last = claim->rows.rows[claim->rows.n - 1].id;
	return true;
}

/*
 * A worker's sid as a value of the column, or none.  False when it is no value
 * of it any more: the column's type was changed since the worker claimed.  That
 * must not stop the claims of the others.
 */
bool
tl_job_read_sid(TlJobTableInfo *info, const TlKey *worker, Datum *sid,
				bool *no_sid)
{
	text	   *name = cstring_to_text_with_len(worker->name, worker->len);
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool valid = true;

	*sid = (Datum) 0;
	*no_sid = tl_job_is_no_sid(worker);
	if (*no_sid)
		return true;
	if (info->sid.type == TEXTOID)
	{
		*sid = PointerGetDatum(name);
		return true;
	}

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		*sid = tl_job_sid(info, name, &(TlKey) {0});
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
		{
			case ERRCODE_DATA_EXCEPTION:
			case ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION:
				break;
			default:
				PG_RE_THROW();
		}
		FlushErrorState();
		FreeErrorData(error);
		RollbackAndReleaseCurrentSubTransaction();
		valid = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return valid;
}

/*
 * Ready rows: in the islands, then behind the position.  Answers whether it
 * is worth to try again.
 */
static bool
find_ready(TlClaim *claim)
{
	TlJobFind	find = {.limit = -1};
	TlPoint		last;
	bool		found;

	if (has_turns(claim->info))
	{
		tl_turn_find_offered(&claim->turns, false);
		if (remaining(claim) == 0)
			return false;
	}
	while (claim->use_position && claim->place.nislands > 0)
	{
		find_in_island(claim);
		if (remaining(claim) == 0)
			return false;
	}

	find.limit = remaining(claim);
	if (claim->use_position && claim->place.position.known)
	{
		find.lower = TL_LOWER_BEHIND;
		find.lo = &claim->place.position;
	}
	claim->turns.in_steps = claim->use_position && claim->sees_all;
	for (;;)
	{
		found = find_rows(claim, &find);
		if (found && claim->use_position && claim->sees_all)
		{
			tl_point_set(&last, &claim->info->key, claim->last);
			tl_position_advance(claim->info, &claim->place, &last);
		}
		find.limit = remaining(claim);
		if (!claim->turns.stopped || find.limit == 0)
			break;

		/* go on from there, or from where others have come to meanwhile */
		tl_position_read(claim->info, claim->call->state.expires,
						 &claim->place);
		find.lower = TL_LOWER_BEHIND;
		find.lo = claim->place.position.known ? &claim->place.position : &last;
	}
	claim->turns.in_steps = false;

	if (has_turns(claim->info) && remaining(claim) > 0)
		tl_turn_find_offered(&claim->turns, true);
	if ((remaining(claim) == 0 && tl_now() < claim->place.look_next) ||
		!tl_look_behind(claim->info, remaining(claim) > 0) ||
		remaining(claim) == 0 || !claim->use_position || !claim->sees_all)
		return false;
	tl_position_read(claim->info, claim->call->state.expires, &claim->place);
	return true;
}

/* The island that comes first in the key's order. */
static TlIsland *
first_island(TlClaim *claim)
{
	TlJobPlace *place = &claim->place;
	TlIsland   *first = &place->islands[0];

	for (int i = 1; i < place->nislands; i++)
	{
		TlIsland   *island = &place->islands[i];
		int			order = tl_point_compare(&island->range.lo,
											 &first->range.lo,
											 &claim->info->key);

		if (order < 0 ||
			(order == 0 && first->behind_lo && !island->behind_lo))
			first = island;
	}
	return first;
}

/*
 * Does an island begin within what was looked at in this call?  Islands may
 * overlap, and our own locks do not keep us from finding a row twice.  But one
 * that was made since may tell of rows that were not ready then.
 */
static bool
begins_in_searched(TlClaim *claim, const TlIsland *island)
{
	TlKeyType  *key = &claim->info->key;
	int			order;

	if (!tl_range_known(&claim->searched) ||
		island->serial > claim->searched_serial)
		return false;
	order = tl_point_compare(&island->range.lo, &claim->searched.lo, key);
	if (order < 0 ||
		(order == 0 && claim->searched_behind_lo && !island->behind_lo))
		return false;
	return tl_point_compare(&island->range.lo, &claim->searched.hi, key) <= 0;
}

static void
note_searched(TlClaim *claim, const TlIsland *island)
{
	claim->searched = island->range;
	claim->searched_behind_lo = island->behind_lo;
	claim->searched_serial = 0;
	for (int i = 0; i < claim->place.nislands; i++)
		claim->searched_serial = Max(claim->searched_serial,
									 claim->place.islands[i].serial);
}

/* Look at the first island, and read the place again. */
static void
find_in_island(TlClaim *claim)
{
	TlIsland   *island = first_island(claim);
	TlJobFind	find = {.limit = remaining(claim)};
	TlPoint		last;

	find.lower = island->behind_lo ? TL_LOWER_BEHIND : TL_LOWER_FROM;
	find.lo = &island->range.lo;
	find.hi = &island->range.hi;
	if (!begins_in_searched(claim, island))
	{
		note_searched(claim, island);
		(void) find_rows(claim, &find);
	}
	else if (tl_point_compare(&island->range.hi, &claim->searched.hi,
							  &claim->info->key) > 0)
	{
		TlPoint		from = claim->searched.hi;

		claim->searched.hi = island->range.hi;
		find.lower = TL_LOWER_BEHIND;
		find.lo = &from;
		(void) find_rows(claim, &find);
	}
	if (!claim->sees_all)
	{
		/* the next one, without telling others */
		*island = claim->place.islands[--claim->place.nislands];
		return;
	}
	if (remaining(claim) == 0)
		tl_point_set(&last, &claim->info->key, claim->last);
	tl_position_island_done(claim->info, island->serial,
							remaining(claim) == 0 ? &last : NULL);
	tl_position_read(claim->info, claim->call->state.expires, &claim->place);
}

static int
compare_rows(const void *a, const void *b, void *arg)
{
	TlKeyType  *type = arg;

	return DatumGetInt32(FunctionCall2Coll(&type->compare,
										   type->stamp.collation,
										   ((const TlJobRow *) a)->id,
										   ((const TlJobRow *) b)->id));
}

/*
 * Rows that come from several places go out in the key's order.  An island
 * that was added meanwhile may have led to rows that were found already; only
 * the last group can have such rows, and loses them here.
 */
static void
sort_rows(TlClaim *claim, int from, int to)
{
	TlJobRow   *rows = claim->rows.rows;
	TlKeyType  *key = &claim->info->key;
	bool		sorted = true;
	int			n = from + 1;

	for (int i = from + 1; i < to && sorted; i++)
		sorted = compare_rows(&rows[i - 1], &rows[i], key) < 0;
	if (sorted)
		return;
	qsort_arg(rows + from, to - from, sizeof(TlJobRow), compare_rows, key);
	if (to < claim->rows.n)
		return;
	for (int i = from + 1; i < to; i++)
		if (compare_rows(&rows[n - 1], &rows[i], key) != 0)
			rows[n++] = rows[i];
	claim->rows.n = n;
}
