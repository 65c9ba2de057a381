/*-------------------------------------------------------------------------
 *
 * job_finish.c
 *	  Finishing jobs, giving them back, and failing them.
 *
 * Only rows that the sid holds in the table at that moment are touched, which
 * the statements test with the row locked: what was taken over in the
 * meantime is somebody else's.
 *
 * Locks: none of ours while statements run.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "clock.h"
#include "job_finish.h"
#include "job_position.h"
#include "job_turn.h"
#include "job_wait.h"
#include "job_xact.h"
#include "utils/lsyscache.h"

void
tl_job_begin(TlJobCall *call, Oid relation, text *sid, TlWorkerCall kind,
			 TlTime ttl)
{
	bool		open = kind != TL_CALL_RENEW;

	call->info = tl_job_table(relation);
	call->sid = tl_job_sid(call->info, sid, &call->worker);
	tl_job_reserve();
	open = open && !tl_job_is_open(&call->worker);
	tl_worker_call(&call->worker, kind, ttl, call->info->ttl, open,
				   &call->state);
	if (open)
		tl_job_open(&call->worker);

	if (call->state.sooner)
		tl_position_note_lapse(relation, call->state.expires);
}

void
tl_job_list(TlJobList *list, ArrayType *ids, Oid array_type)
{
	if (array_contains_nulls(ids))
		tl_error_null("an id");
	list->ids = PointerGetDatum(ids);
	list->array_type = array_type;
	list->n = ArrayGetNItems(ARR_NDIM(ids), ARR_DIMS(ids));
}

/*
 * Note what the worker will no longer hold once this is committed.  Without a
 * range, where there could be one, turns tell where the rows are.
 */
static void
note_given_back(TlJobCall *call, TlJobNoteKind kind, int64 n,
				const TlRange *range)
{
	if (n == 0)
		return;
	tl_job_note(kind, &call->worker, n, range, &call->info->key);
	if (range == NULL)
		tl_job_note_no_island();
	tl_job_merge_note(&call->info->key);
}

int64
tl_job_finish_list(TlJobCall *call, const TlJobList *list)
{
	uint64	   *turns;
	int64		n;

	if (list->n == 0)
		return 0;
	tl_job_reserve();
	n = tl_job_finish(call->info, call->sid, list->ids, list->array_type,
					  &turns);
	if (turns)
	{
		tl_job_reserve_turns(n);
		for (int64 i = 0; i < n; i++)
			if (turns[i] != 0)
				tl_job_note_turn(call->info->relation, turns[i], true);
	}
	note_given_back(call, TL_NOTE_FINISHED, n, NULL);
	return n;
}

void
tl_job_note_given_up(TlJobCall *call, int64 n)
{
	note_given_back(call, TL_NOTE_GIVEN_UP, n, NULL);
}

void
tl_job_note_freed(TlJobTableInfo *info, const TlJobRow *rows, int n)
{
	if (info->turn.attnum == InvalidAttrNumber)
		return;
	tl_job_reserve_turns(n);
	for (int i = 0; i < n; i++)
		if (rows[i].turn != 0)
			tl_job_note_turn(info->relation, rows[i].turn, true);
}

/* Rows are about to be ready again, behind the position. */
static void
expect_turns(TlJobTableInfo *info, const TlJobRows *rows)
{
	TlTurnRow  *turns = MemoryContextAllocHuge(CurrentMemoryContext,
											   sizeof(TlTurnRow) * rows->n);
	int			n = 0;

	for (int i = 0; i < rows->n; i++)
		if (rows->rows[i].turn != 0)
		{
			turns[n].hash = rows->rows[i].turn;
			turns[n++].value = rows->rows[i].turn_value;
		}
	(void) tl_turn_note_rows(info, turns, n, false);
	pfree(turns);
}

/* Give rows back as released, recovered or (with a failure) failed. */
static int64
release_rows(TlJobCall *call, TlJobRows *rows, TlJobChange change,
			 const TlJobFailure *failure)
{
	TlRange		range;
	bool		island;
	int64		n;

	if (rows->n == 0)
		return 0;
	tl_job_reserve();
	island = tl_job_range_without_turns(call->info, rows->rows, rows->n,
										&range);
	if (call->info->keyed && !(failure && failure->give_up))
		expect_turns(call->info, rows);
	n = failure ? tl_job_fail(call->info, failure, rows) :
		tl_job_set(call->info, change, call->sid, rows, NULL);
	tl_job_note_freed(call->info, rows->rows, rows->n);
	if (failure && failure->give_up)
	{
		tl_job_note_given_up(call, n);
		return n;
	}
	note_given_back(call, TL_NOTE_RELEASED, n, island ? &range : NULL);
	if (n > 0)
		tl_job_wake_at_commit(call->info->relation);
	return n;
}

int64
tl_job_release_list(TlJobCall *call, const TlJobList *list)
{
	TlJobRows	rows = {0};

	if (list->n == 0)
		return 0;
	tl_job_find_listed(call->info, call->sid, list->ids, list->array_type,
					   &rows);
	return release_rows(call, &rows, TL_CHANGE_RELEASE, NULL);
}

int64
tl_job_fail_list(TlJobCall *call, const TlJobList *list,
				 const TlJobFailure *failure)
{
	TlJobTableInfo *info = call->info;
	TlJobRows	rows = {0};

	if (failure->retry_in && info->run_at.attnum == InvalidAttrNumber &&
		tl_interval_to_time(failure->retry_in) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot put off jobs of table \"%s\"",
						get_rel_name(info->relation)),
				 errdetail("It has no column for the time at which a job is due."),
				 errhint("Name one with job_table_set(..., run_at_column => ...), or leave retry_in out.")));
	if (failure->give_up)
		tl_job_require_failed(info);
	if (list->n == 0)
		return 0;
	tl_job_find_listed(info, call->sid, list->ids, list->array_type, &rows);
	return release_rows(call, &rows, TL_CHANGE_RELEASE, failure);
}

int64
tl_job_release_all(TlJobCall *call, bool lapsed)
{
	TlWorkerState state;
	const TlRange *range;
	TlJobRows	rows = {0};
	TlJobFind	find = {.owned = true,.wait = true,.sid = call->sid,
	.limit = -1};

	if (!tl_worker_look(&call->worker, &state))
		return 0;
	if (state.claimed == 0 && !state.inexact)
		return 0;
	range = tl_worker_range(&state, &call->info->key);
	if (range)
	{
		find.lower = TL_LOWER_FROM;
		find.lo = &range->lo;
		find.hi = &range->hi;
	}
	tl_job_find(call->info, &find, &rows);
	return release_rows(call, &rows,
						lapsed ? TL_CHANGE_RECOVER : TL_CHANGE_RELEASE, NULL);
}
