/*-------------------------------------------------------------------------
 *
 * job_ready.c
 *	  Are there jobs to be claimed, and when will there be?
 *
 * For those who wait for jobs.  Jobs are looked for in the places where a
 * claim looks, in its order, but no row is locked: a claim that came across a
 * lock of ours would take its job for somebody else's.
 *
 * Locks: none of ours while statements run.
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
#include "job_plan.h"
#include "job_position.h"
#include "job_ready.h"
#include "job_sql.h"
#include "job_turn_find.h"
#include "job_worker.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Rows that are asked for at first, and at most: others may have locked them. */
#define TL_FIRST_ROWS	16
#define TL_MOST_ROWS	4096

/* Dead workers whose rows are counted. */
#define TL_MOST_DEAD	16

/* Parameters: 1 and 2 the ends of the range, 3 the limit, 4 the present time. */
static void
prepare_peek(TlJobTableInfo *info, TlJobPlan *plan, TlJobLower lower,
			 bool upper)
{
	StringInfoData buf;
	Oid			types[4] = {info->id.type, info->id.type, INT8OID,
	TIMESTAMPTZOID};

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s.tableoid, %s.ctid FROM %s WHERE ",
					 info->alias, info->alias, info->from);
	tl_job_append_ready(&buf, info, 4);
	if (lower != TL_LOWER_NONE)
		appendStringInfo(&buf, " AND %s %s $1", info->id.name,
						 lower == TL_LOWER_FROM ? info->greater_equal :
						 info->greater);
	if (upper)
		appendStringInfo(&buf, " AND %s %s $2", info->id.name,
						 info->less_equal);
	appendStringInfo(&buf, " ORDER BY %s LIMIT $3", info->order);
	tl_plan_prepare(plan, buf.data, lengthof(types), types);
}

/* Does a claim start at a position? */
static bool
in_place(TlJobTableInfo *info)
{
	return info->keyed && !tl_job_row_security(info);
}

/* Is there a ready row in this range that a claim could have? */
static bool
is_ready(TlJobTableInfo *info, TlJobLower lower, const TlPoint *lo,
		 const TlPoint *hi)
{
	TlJobPlan  *plan = &info->peek[lower][hi != NULL];
	TlJobFind	find = {.lower = lower,.lo = lo,.hi = hi};
	Datum		values[4] = {0};
	char		nulls[5] = "nn  ";

	if (info->turn.attnum != InvalidAttrNumber)
		return tl_turn_is_ready(info, &find, in_place(info));
	if (lower != TL_LOWER_NONE)
	{
		values[0] = tl_point_value(lo, &info->key);
		nulls[0] = ' ';
	}
	if (hi)
	{
		values[1] = tl_point_value(hi, &info->key);
		nulls[1] = ' ';
	}
	for (int64 limit = TL_FIRST_ROWS; limit <= TL_MOST_ROWS; limit *= 16)
	{
		int			level = tl_job_begin_path(info);
		SPITupleTable *result;
		uint64		n;
		bool		found = false;

		if (plan->plan == NULL)
			prepare_peek(info, plan, lower, hi != NULL);
		values[2] = Int64GetDatum(limit);
		values[3] = TimestampTzGetDatum(GetCurrentTimestamp());
		n = tl_plan_execute(plan, values, nulls, SPI_OK_SELECT);
		tl_job_end_path(level);
		result = SPI_tuptable;
		for (uint64 i = 0; i < n && !found; i++)
		{
			bool		isnull;
			Datum		relation = SPI_getbinval(result->vals[i],
												 result->tupdesc, 1, &isnull);
			Datum		tid = SPI_getbinval(result->vals[i],
											result->tupdesc, 2, &isnull);

			found = !info->heap ||
				tl_look_is_free(DatumGetObjectId(relation),
								(ItemPointer) DatumGetPointer(tid));
		}
		SPI_freetuptable(result);
		if (found)
			return true;
		if (n < (uint64) limit)
			break;
	}
	return false;
}

static bool
any_ready(TlJobTableInfo *info, const TlJobPlace *place)
{
	if (!in_place(info))
		return is_ready(info, TL_LOWER_NONE, NULL, NULL);
	if (info->turn.attnum != InvalidAttrNumber && tl_turn_is_offered(info))
		return true;
	for (int i = 0; i < place->nislands; i++)
	{
		const TlIsland *island = &place->islands[i];

		if (is_ready(info, island->behind_lo ? TL_LOWER_BEHIND :
					 TL_LOWER_FROM, &island->range.lo, &island->range.hi))
			return true;
	}
	return place->position.known ?
		is_ready(info, TL_LOWER_BEHIND, &place->position, NULL) :
		is_ready(info, TL_LOWER_NONE, NULL, NULL);
}

/* Has a dead worker left rows?  What it was thought to have is corrected. */
static bool
has_left_rows(TlJobTableInfo *info, const TlKey *dead)
{
	TlWorkerState state;
	Datum		sid;
	bool		no_sid;
	int64		n = 0;

	if (!tl_worker_is_dead(dead, &state))
		return false;
	if (tl_job_read_sid(info, dead, &sid, &no_sid))
		n = tl_job_count(info, sid, no_sid,
						 tl_worker_range(&state, &info->key));
	if (n > 0)
		return true;
	if (!tl_job_row_security(info) && !IsolationUsesXactSnapshot())
		(void) tl_worker_counted(dead, state.version, 0, 0);
	tl_worker_rest(dead);
	return false;
}

static bool
any_lapsed(TlJobTableInfo *info)
{
	TlTime		now = tl_now();
	TlKey	   *dead;
	TlTime		next;
	int			n;
	bool		found = false;

	dead = palloc(sizeof(TlKey) * TL_MOST_DEAD);
	if (!tl_position_begin_lapses(info->relation, now))
		return false;
	n = tl_worker_dead(info->relation, dead, TL_MOST_DEAD, &next);
	tl_position_note_lapse(info->relation, next);
	for (int i = 0; i < n && !found; i++)
		found = has_left_rows(info, &dead[i]);
	return found;
}

bool
tl_job_ready(TlJobTableInfo *info)
{
	TlJobPlace	place;

	if (info->paused)
		return false;
	tl_position_read(info, TL_NEVER, &place);
	if (any_ready(info, &place) ||
		(place.next_lapse <= tl_now() && any_lapsed(info)))
		return true;
	if (!tl_look_behind(info, true))
		return false;
	tl_position_read(info, TL_NEVER, &place);
	return any_ready(info, &place);
}

/* Parameter: that time. */
static void
prepare_due(TlJobTableInfo *info)
{
	StringInfoData buf;
	Oid			types[1] = {TIMESTAMPTZOID};

	initStringInfo(&buf);
	appendStringInfo(&buf,
					 "SELECT %s FROM %s WHERE %s %s %s"
					 " AND %s OPERATOR(pg_catalog.>) $1 ORDER BY 1 LIMIT 1",
					 info->run_at.name, info->from, info->status.name,
					 info->status.equals, info->literals[TL_JOB_READY],
					 info->run_at.name);
	tl_plan_prepare(&info->due, buf.data, lengthof(types), types);
}

TlTime
tl_job_next_due(TlJobTableInfo *info, TimestampTz since)
{
	Datum		values[1] = {TimestampTzGetDatum(since)};
	TlTime		due = TL_NEVER;

	if (info->run_at.attnum == InvalidAttrNumber || info->paused)
		return TL_NEVER;
	if (info->due.plan == NULL)
		prepare_due(info);
	if (tl_plan_execute(&info->due, values, NULL, SPI_OK_SELECT) > 0)
	{
		bool		isnull;
		TimestampTz when =
			DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
											  SPI_tuptable->tupdesc, 1,
											  &isnull));

		if (!TIMESTAMP_NOT_FINITE(when))
			due = tl_now() + Max(when - GetCurrentTimestamp(), 0);
	}
	SPI_freetuptable(SPI_tuptable);
	return due;
}
