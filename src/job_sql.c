/*-------------------------------------------------------------------------
 *
 * job_sql.c
 *	  The statements that find jobs, and what statements on jobs are made of.
 *
 * They run as the caller, with its rights, policies and triggers.  All names
 * and operators in them are qualified, as the search_path may be anything.
 *
 * Rows are found in one statement, which locks them, and changed in a second
 * one (job_change.c).  The first tests status and sid in the very query level
 * that locks, so that a row whose newest version does not fit any more is left
 * out.  The second finds the rows where the first has seen them: they are
 * locked, so nobody can move them.  In partitioned tables it goes by the key,
 * because a place does not say in which partition it is.
 *
 * All of this needs a connection to SPI, and allocates in the memory context
 * that goes with it.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/instrument.h"
#include "job_plan.h"
#include "job_sql.h"
#include "job_turn.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static void append_lock(StringInfo buf, TlJobTableInfo *info, bool wait);

/*
 * Finding
 */

int64
tl_job_pages_accessed(void)
{
	return pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read +
		pgBufferUsage.local_blks_hit + pgBufferUsage.local_blks_read;
}

/*
 * Parameters: 1 the sid, 2 and 3 the ends of the range, 4 the limit, 5 the
 * present time.
 */
static void
prepare_find(TlJobTableInfo *info, TlJobPlan *plan, const TlJobFind *find)
{
	StringInfoData buf;
	Oid			types[5] = {info->sid.type, info->id.type, info->id.type,
		INT8OID, TIMESTAMPTZOID};

	initStringInfo(&buf);
	tl_job_append_columns(&buf, info);
	appendStringInfo(&buf, " FROM %s WHERE ", info->from);
	if (find->owned)
		tl_job_append_owned(&buf, info, find->no_sid ? 0 : 1);
	else
		tl_job_append_ready(&buf, info, 5);
	if (find->lower != TL_LOWER_NONE)
		appendStringInfo(&buf, " AND %s %s $2", info->id.name,
						 find->lower == TL_LOWER_FROM ? info->greater_equal :
						 info->greater);
	if (find->hi)
		appendStringInfo(&buf, " AND %s %s $3", info->id.name,
						 info->less_equal);
	appendStringInfo(&buf, " ORDER BY %s",
					 find->wait ? info->id.name : info->order);
	if (!find->wait)
		appendStringInfoString(&buf, " LIMIT $4");
	append_lock(&buf, info, find->wait);

	/* the key's order is no reason to read what others have in it */
	plan->may_sort = find->wait;
	tl_plan_prepare(plan, buf.data, lengthof(types), types);
}

int64
tl_job_find(TlJobTableInfo *info, const TlJobFind *find, TlJobRows *rows)
{
	TlJobPlan  *plan = &info->find[find->owned + find->no_sid][find->lower]
		[find->hi != NULL][find->wait];
	Datum		values[5];
	char		nulls[6] = "     ";
	int			before = rows->n;
	int64		pages = tl_job_pages_accessed();
	int			level = find->owned ? 0 : tl_job_begin_path(info);

	if (plan->plan == NULL)
		prepare_find(info, plan, find);
	values[0] = find->sid;
	if (!find->owned || find->no_sid)
		nulls[0] = 'n';
	if (find->lower != TL_LOWER_NONE)
		values[1] = tl_point_value(find->lo, &info->key);
	else
		nulls[1] = 'n';
	if (find->hi)
		values[2] = tl_point_value(find->hi, &info->key);
	else
		nulls[2] = 'n';
	values[3] = Int64GetDatum(find->limit);
	if (find->limit < 0)
		nulls[3] = 'n';
	if (info->run_at.attnum != InvalidAttrNumber)
		values[4] = TimestampTzGetDatum(GetCurrentTimestamp());
	else
		nulls[4] = 'n';
	tl_plan_execute_lock(info, plan, values, nulls);
	tl_job_end_path(level);
	info->pages_read += tl_job_pages_accessed() - pages;
	tl_job_add_rows(info, rows);
	return rows->n - before;
}

void
tl_job_check_statements(TlJobTableInfo *info)
{
	TlJobFind	find = {.limit = 1};
	int			level = tl_job_begin_path(info);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	prepare_find(info, &info->find[0][TL_LOWER_NONE][false][false],
				 &find);
	SPI_finish();
	tl_job_end_path(level);
}

int64
tl_job_count(TlJobTableInfo *info, Datum sid, bool no_sid,
			 const TlRange *range)
{
	bool		bounded = range && tl_range_known(range);
	TlJobPlan  *plan = &info->count[no_sid][bounded];
	int64		pages = tl_job_pages_accessed();
	Datum		values[3];
	char		nulls[4] = "   ";
	bool		isnull;
	int64		n;

	if (plan->plan == NULL)
	{
		StringInfoData buf;
		Oid			types[3] = {info->sid.type, info->id.type, info->id.type};

		initStringInfo(&buf);
		appendStringInfo(&buf, "SELECT pg_catalog.count(*) FROM %s WHERE ",
						 info->from);
		tl_job_append_owned(&buf, info, no_sid ? 0 : 1);
		if (bounded)
			appendStringInfo(&buf, " AND %s %s $2 AND %s %s $3",
							 info->id.name, info->greater_equal,
							 info->id.name, info->less_equal);
		tl_plan_prepare(plan, buf.data, bounded ? 3 : 1, types);
	}
	values[0] = sid;
	if (no_sid)
		nulls[0] = 'n';
	if (bounded)
	{
		values[1] = tl_point_value(&range->lo, &info->key);
		values[2] = tl_point_value(&range->hi, &info->key);
	}
	tl_plan_execute(plan, values, nulls, SPI_OK_SELECT);
	info->pages_read += tl_job_pages_accessed() - pages;
	n = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									SPI_tuptable->tupdesc, 1, &isnull));
	SPI_freetuptable(SPI_tuptable);
	return n;
}

/* Parameter: the rows' places or keys. */
static void
prepare_sort(TlJobTableInfo *info)
{
	StringInfoData buf;
	Oid			types[1];

	initStringInfo(&buf);
	tl_job_append_columns(&buf, info);
	appendStringInfo(&buf, " FROM %s WHERE ", info->from);
	types[0] = tl_job_append_listed(&buf, info);
	appendStringInfo(&buf, " ORDER BY %s", info->order);
	tl_plan_prepare(&info->sort, buf.data, lengthof(types), types);
}

void
tl_job_sort(TlJobTableInfo *info, TlJobRows *rows, int from, int to)
{
	TlJobRows	part = {.rows = rows->rows + from,.n = to - from};
	TlJobRows	sorted = {0};
	Datum		values[1] = {tl_job_row_array(info, &part)};

	if (info->sort.plan == NULL)
		prepare_sort(info);
	tl_plan_execute(&info->sort, values, NULL, SPI_OK_SELECT);
	tl_job_add_rows(info, &sorted);

	/* they are locked, so all are there */
	if (sorted.n == part.n)
		memcpy(part.rows, sorted.rows, sizeof(TlJobRow) * sorted.n);
}

/*
 * Lists of ids.  Parameters: 1 the list, 2 the sid.
 */

int64
tl_job_find_listed(TlJobTableInfo *info, Datum sid, Datum ids,
				   Oid array_type, TlJobRows *rows)
{
	TlJobListPlan *list = tl_job_list_plan(info, array_type);
	Datum		values[2] = {ids, sid};
	int			before = rows->n;

	if (list->lock.plan == NULL)
	{
		StringInfoData buf;
		Oid			types[2] = {array_type, info->sid.type};

		initStringInfo(&buf);
		tl_job_append_columns(&buf, info);
		appendStringInfo(&buf, " FROM %s WHERE %s %s ANY ($1::%s[]) AND ",
						 info->from, info->id.name, info->id.equals, info->id.type_name);
		tl_job_append_owned(&buf, info, 2);
		appendStringInfo(&buf, " ORDER BY %s", info->id.name);
		append_lock(&buf, info, true);
		tl_plan_prepare(&list->lock, buf.data, lengthof(types), types);
	}
	tl_plan_execute_lock(info, &list->lock, values, NULL);
	tl_job_add_rows(info, rows);
	return rows->n - before;
}

TlJobListPlan *
tl_job_list_plan(TlJobTableInfo *info, Oid array_type)
{
	TlJobListPlan *list;

	for (list = info->lists; list; list = list->next)
		if (list->array_type == array_type)
			return list;
	list = MemoryContextAllocZero(info->context, sizeof(TlJobListPlan));
	list->array_type = array_type;
	list->next = info->lists;
	info->lists = list;
	return list;
}

/*
 * Parts of statements
 */

void
tl_job_append_owned(StringInfo buf, TlJobTableInfo *info, int sid_param)
{
	appendStringInfo(buf, "%s %s %s AND ", info->status.name,
					 info->status.equals, info->literals[TL_JOB_CLAIMED]);
	if (sid_param == 0)
		appendStringInfo(buf, "%s IS NULL", info->sid.name);
	else
		appendStringInfo(buf, "%s %s $%d", info->sid.name, info->sid.equals,
						 sid_param);
}

void
tl_job_append_used_up(StringInfo buf, TlJobTableInfo *info)
{
	if (info->max_attempts > 0)
		appendStringInfo(buf,
						 "(%s OPERATOR(pg_catalog.>=) " INT64_FORMAT "::pg_catalog.int8) IS TRUE",
						 info->attempts.name, info->max_attempts);
}

void
tl_job_append_ready(StringInfo buf, const TlJobTableInfo *info,
					int time_param)
{
	appendStringInfo(buf, "%s %s %s", info->status.name, info->status.equals,
					 info->literals[TL_JOB_READY]);
	if (info->run_at.attnum != InvalidAttrNumber && time_param > 0)
	{
		appendStringInfo(buf, " AND (%s OPERATOR(pg_catalog.<=) $%d",
						 info->run_at.name, time_param);
		if (info->run_at_may_be_null)
			appendStringInfo(buf, " OR %s IS NULL", info->run_at.name);
		appendStringInfoChar(buf, ')');
	}
	if (info->ready_when)
		appendStringInfo(buf, " AND %s", info->ready_when);
}

Oid
tl_job_append_listed(StringInfo buf, TlJobTableInfo *info)
{
	if (info->partitioned)
	{
		appendStringInfo(buf, "%s %s ANY ($1)", info->id.name,
						 info->id.equals);
		return info->key_array_type;
	}
	appendStringInfo(buf, "%s.ctid OPERATOR(pg_catalog.=) ANY ($1)",
					 info->alias);
	return TIDARRAYOID;
}

static void
append_lock(StringInfo buf, TlJobTableInfo *info, bool wait)
{
	appendStringInfo(buf, " FOR %s%s",
					 info->strong_lock ? "UPDATE" : "NO KEY UPDATE",
					 wait ? "" : " SKIP LOCKED");
}

void
tl_job_append_columns(StringInfo buf, TlJobTableInfo *info)
{
	bool		turns = info->turn.attnum != InvalidAttrNumber;

	appendStringInfo(buf, "SELECT %s.ctid, %s", info->alias, info->id.name);
	if (info->max_attempts > 0)
	{
		appendStringInfoString(buf, ", ");
		tl_job_append_used_up(buf, info);
	}
	else if (turns)
		appendStringInfoString(buf, ", false");
	if (turns)
		appendStringInfo(buf, ", %s", info->turn.name);
}

Datum
tl_job_row_array(TlJobTableInfo *info, const TlJobRows *rows)
{
	Datum	   *values = palloc(sizeof(Datum) * rows->n);

	if (info->partitioned)
	{
		for (int i = 0; i < rows->n; i++)
			values[i] = rows->rows[i].id;
		return PointerGetDatum(construct_array(values, rows->n, info->id.type,
											   info->key.len, info->key.byval,
											   info->key.align));
	}
	for (int i = 0; i < rows->n; i++)
		values[i] = PointerGetDatum(&rows->rows[i].tid);
	return PointerGetDatum(construct_array(values, rows->n, TIDOID,
										   sizeof(ItemPointerData), false,
										   TYPALIGN_SHORT));
}

void
tl_job_add_rows(TlJobTableInfo *info, TlJobRows *rows)
{
	SPITupleTable *result = SPI_tuptable;

	if ((int) result->numvals > rows->allocated - rows->n)
	{
		rows->allocated = rows->n + (int) result->numvals;
		rows->rows = rows->rows == NULL ?
			MemoryContextAllocHuge(CurrentMemoryContext,
								   sizeof(TlJobRow) * rows->allocated) :
			repalloc_huge(rows->rows, sizeof(TlJobRow) * rows->allocated);
	}
	for (uint64 i = 0; i < result->numvals; i++)
	{
		TlJobRow   *row = &rows->rows[rows->n++];
		bool		isnull;
		Datum		id;

		row->tid = *(ItemPointer)
			DatumGetPointer(SPI_getbinval(result->vals[i], result->tupdesc, 1,
										  &isnull));
		id = SPI_getbinval(result->vals[i], result->tupdesc, 2, &isnull);
		if (tl_point_needs_detoast(&info->key, id))
			id = PointerGetDatum(PG_DETOAST_DATUM(id));
		row->id = id;
		row->used_up = result->tupdesc->natts > 2 &&
			DatumGetBool(SPI_getbinval(result->vals[i], result->tupdesc, 3,
									   &isnull));
		row->turn = 0;
		if (result->tupdesc->natts > 3)
		{
			Datum		value = SPI_getbinval(result->vals[i],
											  result->tupdesc, 4, &isnull);

			row->turn = tl_turn_hash(info, &value, isnull);
			row->turn_value = value;
		}
	}
}
