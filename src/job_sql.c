/*-------------------------------------------------------------------------
 *
 * job_sql.c
 *	  The statements that find and change jobs.
 *
 * They run as the caller, with its rights, policies and triggers.  All names
 * and operators in them are qualified, as the search_path may be anything.
 *
 * Rows are found in one statement, which locks them, and changed in a second
 * one.  The first tests status and sid in the very query level that locks, so
 * that a row whose newest version does not fit any more is left out.  The
 * second finds the rows where the first has seen them: they are locked, so
 * nobody can move them.  In partitioned tables it goes by the key, because a
 * place does not say in which partition it is.
 *
 * All of this needs a connection to SPI, and allocates in the memory context
 * that goes with it.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/instrument.h"
#include "job_plan.h"
#include "job_table.h"
#include "job_turn.h"
#include "job_wait.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static void append_owned(StringInfo buf, TlJobTableInfo *info, int sid_param);
static void append_used_up(StringInfo buf, TlJobTableInfo *info);
static Oid	append_listed(StringInfo buf, TlJobTableInfo *info);
static void append_lock(StringInfo buf, TlJobTableInfo *info, bool wait);
static Datum row_array(TlJobTableInfo *info, const TlJobRows *rows);
static TlJobListPlan *list_plan(TlJobTableInfo *info, Oid array_type);

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
		append_owned(&buf, info, find->no_sid ? 0 : 1);
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
		append_owned(&buf, info, no_sid ? 0 : 1);
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
	types[0] = append_listed(&buf, info);
	appendStringInfo(&buf, " ORDER BY %s", info->order);
	tl_plan_prepare(&info->sort, buf.data, lengthof(types), types);
}

void
tl_job_sort(TlJobTableInfo *info, TlJobRows *rows, int from, int to)
{
	TlJobRows	part = {.rows = rows->rows + from,.n = to - from};
	TlJobRows	sorted = {0};
	Datum		values[1] = {row_array(info, &part)};

	if (info->sort.plan == NULL)
		prepare_sort(info);
	tl_plan_execute(&info->sort, values, NULL, SPI_OK_SELECT);
	tl_job_add_rows(info, &sorted);

	/* they are locked, so all are there */
	if (sorted.n == part.n)
		memcpy(part.rows, sorted.rows, sizeof(TlJobRow) * sorted.n);
}

/*
 * Changing
 */

/* Execute an UPDATE, which is no news for those who wait for jobs. */
static uint64
execute_update(TlJobTableInfo *info, TlJobPlan *plan, Datum *values,
			   const char *nulls, int expected)
{
	uint64		n;

	tl_job_wake_begin_own(info->relation);
	n = tl_plan_execute(plan, values, nulls, expected);
	tl_job_wake_end_own();
	return n;
}

/* Begin an UPDATE with the new status; more columns are to follow. */
static void
append_update(StringInfo buf, TlJobTableInfo *info, TlJobStatus status)
{
	appendStringInfo(buf, "UPDATE %s SET %s = %s", info->from,
					 info->status.target, info->literals[status]);
	if (status == TL_JOB_READY && info->sid_may_be_null)
		appendStringInfo(buf, ", %s = NULL", info->sid.target);
}

/* One less than what the column for attempts holds: there they stop. */
static const char *
most_attempts(const TlJobTableInfo *info)
{
	switch (info->attempts.type)
	{
		case INT2OID:
			return "32766";
		case INT4OID:
			return "2147483646";
		default:
			return "9223372036854775806";
	}
}

/* Parameters: 1 the rows' places or keys, 2 the sid. */
static void
prepare_set(TlJobTableInfo *info, TlJobPlan *plan, TlJobChange change)
{
	StringInfoData buf;
	Oid			types[2] = {InvalidOid, info->sid.type};
	bool		counted = info->attempts.attnum != InvalidAttrNumber;

	initStringInfo(&buf);
	switch (change)
	{
		case TL_CHANGE_CLAIM:
			append_update(&buf, info, TL_JOB_CLAIMED);
			appendStringInfo(&buf, ", %s = $2", info->sid.target);
			if (counted)
				appendStringInfo(&buf,
								 ", %s = LEAST(COALESCE(%s, 0), %s) OPERATOR(pg_catalog.+) 1",
								 info->attempts.target, info->attempts.name,
								 most_attempts(info));
			break;
		case TL_CHANGE_FINISH:
			append_update(&buf, info, TL_JOB_DONE);
			break;
		case TL_CHANGE_RELEASE:
			append_update(&buf, info, TL_JOB_READY);
			if (counted)
				appendStringInfo(&buf,
								 ", %s = GREATEST(%s OPERATOR(pg_catalog.-) 1, 0)",
								 info->attempts.target, info->attempts.name);
			break;
		case TL_CHANGE_RECOVER:
			append_update(&buf, info, TL_JOB_READY);
			break;
		case TL_CHANGE_USED_UP:
			append_update(&buf, info, TL_JOB_FAILED);
			if (info->error.attnum != InvalidAttrNumber)
				appendStringInfo(&buf,
								 ", %s = 'all " INT64_FORMAT " attempts are used up'::%s",
								 info->error.target, info->max_attempts,
								 info->error.cut_type_name);
			break;
	}
	appendStringInfoString(&buf, " WHERE ");
	types[0] = append_listed(&buf, info);
	if (change == TL_CHANGE_CLAIM)
	{
		appendStringInfo(&buf, " RETURNING %s, %s, (", info->id.name,
						 info->alias);
		append_owned(&buf, info, 2);
		appendStringInfoString(&buf, ") IS TRUE");
	}
	tl_plan_prepare(plan, buf.data, lengthof(types), types);
}

static Datum
row_array(TlJobTableInfo *info, const TlJobRows *rows)
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

/* A row by the hash of its key. */
typedef struct HashedRow
{
	uint32		hash;
	int			at;
} HashedRow;

static int
compare_hashed(const void *a, const void *b)
{
	const HashedRow *x = a;
	const HashedRow *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

static HashedRow *
hash_rows(TlJobTableInfo *info, const TlJobRows *rows)
{
	HashedRow  *hashed = MemoryContextAllocHuge(CurrentMemoryContext,
												sizeof(HashedRow) * rows->n);

	for (int i = 0; i < rows->n; i++)
	{
		hashed[i].hash = tl_value_hash(rows->rows[i].id, info->key.len,
									   info->key.byval);
		hashed[i].at = i;
	}
	qsort(hashed, rows->n, sizeof(HashedRow), compare_hashed);
	return hashed;
}

/* Where is the row with this key that has nothing in its slot?  -1: nowhere. */
static int
find_slot(TlJobTableInfo *info, const TlJobRows *rows,
		  const HashedRow *hashed, HeapTupleHeader *slots, Datum id)
{
	uint32		hash = tl_value_hash(id, info->key.len, info->key.byval);
	int			low = 0;
	int			high = rows->n;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (hashed[middle].hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < rows->n && hashed[low].hash == hash; low++)
		if (slots[hashed[low].at] == NULL &&
			tl_value_same(rows->rows[hashed[low].at].id, id, info->key.len,
						  info->key.byval))
			return hashed[low].at;
	return -1;
}

/*
 * Put the rows that an UPDATE has returned in the order of *rows, but for those
 * that the worker does not have: a trigger may do as it likes.  They mostly
 * come in that order; where the keys are in no order in the table, as random
 * ones, they are looked up.
 */
static int64
collect_changed(TlJobTableInfo *info, const TlJobRows *rows,
				HeapTupleHeader *changed)
{
	SPITupleTable *result = SPI_tuptable;
	HeapTupleHeader *slots =
		MemoryContextAllocExtended(CurrentMemoryContext,
								   sizeof(HeapTupleHeader) * rows->n,
								   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	HashedRow  *hashed = NULL;
	int			next = 0;
	int			unused = 0;
	int64		n = 0;

	for (uint64 i = 0; i < result->numvals; i++)
	{
		bool		isnull;
		Datum		id = SPI_getbinval(result->vals[i], result->tupdesc, 1,
									   &isnull);
		Datum		row = SPI_getbinval(result->vals[i], result->tupdesc, 2,
										&isnull);
		bool		owned = DatumGetBool(SPI_getbinval(result->vals[i],
													   result->tupdesc, 3,
													   &isnull));
		int			at = next;

		CHECK_FOR_INTERRUPTS();
		if (!owned)
			continue;
		if (slots[at] != NULL ||
			!tl_value_same(rows->rows[at].id, id, info->key.len,
						   info->key.byval))
		{
			if (hashed == NULL)
				hashed = hash_rows(info, rows);
			at = find_slot(info, rows, hashed, slots, id);
		}
		if (at < 0)
		{
			/* a trigger has changed the key */
			while (slots[unused] != NULL)
				unused++;
			at = unused;
		}
		slots[at] = DatumGetHeapTupleHeader(row);
		next = at + 1 == rows->n ? 0 : at + 1;
	}
	for (int i = 0; i < rows->n; i++)
		if (slots[i])
			changed[n++] = slots[i];
	return n;
}

/* Rows of partitions are found by id, and there may be others that have it. */
static void
check_changed(TlJobTableInfo *info, const TlJobRows *rows, uint64 n)
{
	if (n > (uint64) rows->n)
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("several rows of job table \"%s\" have the same \"%s\"",
						get_rel_name(info->relation), info->id.raw_name),
				 errdetail("It must be unique in all partitions, and a deferred key does not hold at the moment."),
				 errhint("Correct the rows, or say SET CONSTRAINTS ALL IMMEDIATE before you claim.")));
}

int64
tl_job_set(TlJobTableInfo *info, TlJobChange change, Datum sid,
		   const TlJobRows *rows, HeapTupleHeader *changed)
{
	TlJobPlan  *plan = &info->set[change];
	Datum		values[2];
	uint64		n;

	if (rows->n == 0)
		return 0;
	if (plan->plan == NULL)
		prepare_set(info, plan, change);
	values[0] = row_array(info, rows);
	values[1] = sid;
	n = execute_update(info, plan, values, NULL,
					   change == TL_CHANGE_CLAIM ? SPI_OK_UPDATE_RETURNING :
					   SPI_OK_UPDATE);
	check_changed(info, rows, n);
	return change == TL_CHANGE_CLAIM ? collect_changed(info, rows, changed) :
		(int64) n;
}

/*
 * When a job that has failed is due again: after 5 s, twice as long with each
 * attempt, at most an hour.  More than ten times twice is more than that.
 */
static void
append_backoff(StringInfo buf, TlJobTableInfo *info)
{
	appendStringInfoString(buf,
						   "$3 OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs =>");
	if (info->attempts.attnum == InvalidAttrNumber)
		appendStringInfoString(buf, " 5)");
	else
		appendStringInfo(buf,
						 " LEAST(3600::pg_catalog.float8, 5::pg_catalog.float8"
						 " OPERATOR(pg_catalog.*) pg_catalog.power(2::pg_catalog.float8,"
						 " LEAST(GREATEST(%s, 1) OPERATOR(pg_catalog.-) 1, 10)::pg_catalog.float8)))",
						 info->attempts.name);
}

/*
 * Parameters: 1 the rows' places or keys, 2 the error, 3 the present time or,
 * with retry_in, when the rows are due.
 */
static void
prepare_fail(TlJobTableInfo *info, TlJobPlan *plan,
			 const TlJobFailure *failure)
{
	StringInfoData buf;
	StringInfoData used_up;
	Oid			types[3] = {InvalidOid, TEXTOID, TIMESTAMPTZOID};
	bool		either = !failure->give_up && info->max_attempts > 0;

	initStringInfo(&buf);
	initStringInfo(&used_up);
	append_used_up(&used_up, info);
	if (either)
	{
		appendStringInfo(&buf,
						 "UPDATE %s SET %s = CASE WHEN %s THEN %s ELSE %s END",
						 info->from, info->status.target, used_up.data,
						 info->literals[TL_JOB_FAILED],
						 info->literals[TL_JOB_READY]);
		if (info->sid_may_be_null)
			appendStringInfo(&buf, ", %s = CASE WHEN %s THEN %s END",
							 info->sid.target, used_up.data, info->sid.name);
	}
	else
		append_update(&buf, info,
					  failure->give_up ? TL_JOB_FAILED : TL_JOB_READY);
	if (info->run_at.attnum != InvalidAttrNumber && !failure->give_up)
	{
		appendStringInfo(&buf, ", %s = ", info->run_at.target);
		if (either)
			appendStringInfo(&buf, "CASE WHEN %s THEN %s ELSE ",
							 used_up.data, info->run_at.name);
		if (failure->retry_in)
			appendStringInfoString(&buf, "$3");
		else
			append_backoff(&buf, info);
		if (either)
			appendStringInfoString(&buf, " END");
	}
	if (info->error.attnum != InvalidAttrNumber)
		appendStringInfo(&buf, ", %s = $2::%s", info->error.target,
						 info->error.cut_type_name);
	appendStringInfoString(&buf, " WHERE ");
	types[0] = append_listed(&buf, info);
	tl_plan_prepare(plan, buf.data, lengthof(types), types);
}

int64
tl_job_fail(TlJobTableInfo *info, const TlJobFailure *failure,
			const TlJobRows *rows)
{
	TlJobPlan  *plan = &info->fail[failure->give_up][failure->retry_in != NULL];
	Datum		values[3];
	char		nulls[4] = "   ";
	uint64		n;

	if (plan->plan == NULL)
		prepare_fail(info, plan, failure);
	values[0] = row_array(info, rows);
	values[1] = PointerGetDatum(failure->error);
	if (failure->error == NULL)
		nulls[1] = 'n';
	values[2] = TimestampTzGetDatum(GetCurrentTimestamp());
	if (failure->retry_in)
		values[2] = DirectFunctionCall2(timestamptz_pl_interval, values[2],
										IntervalPGetDatum(failure->retry_in));
	n = execute_update(info, plan, values, nulls, SPI_OK_UPDATE);
	check_changed(info, rows, n);
	return n;
}

/*
 * Lists of ids.  Parameters: 1 the list, 2 the sid.
 */

int64
tl_job_find_listed(TlJobTableInfo *info, Datum sid, Datum ids,
				   Oid array_type, TlJobRows *rows)
{
	TlJobListPlan *list = list_plan(info, array_type);
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
		append_owned(&buf, info, 2);
		appendStringInfo(&buf, " ORDER BY %s", info->id.name);
		append_lock(&buf, info, true);
		tl_plan_prepare(&list->lock, buf.data, lengthof(types), types);
	}
	tl_plan_execute_lock(info, &list->lock, values, NULL);
	tl_job_add_rows(info, rows);
	return rows->n - before;
}

/*
 * One statement, if it can be planned as a scan of the key's index, which
 * goes through a list in the key's order and so locks in that order.
 */
int64
tl_job_finish(TlJobTableInfo *info, Datum sid, Datum ids, Oid array_type,
			  uint64 **turns)
{
	TlJobListPlan *list = list_plan(info, array_type);
	TlJobRows	rows = {0};
	bool		with_turns = info->turn.attnum != InvalidAttrNumber;
	int64		n;

	*turns = NULL;
	if (list->finish.plan == NULL)
	{
		StringInfoData buf;
		Oid			types[2] = {array_type, info->sid.type};

		/* what stands in a test for truth is out of other indexes' reach */
		initStringInfo(&buf);
		appendStringInfo(&buf,
						 "UPDATE %s SET %s = %s"
						 " WHERE %s %s ANY ($1::%s[])"
						 " AND (%s %s %s) IS TRUE AND (%s %s $2) IS TRUE",
						 info->from, info->status.target,
						 info->literals[TL_JOB_DONE],
						 info->id.name, info->id.equals, info->id.type_name,
						 info->status.name, info->status.equals,
						 info->literals[TL_JOB_CLAIMED],
						 info->sid.name, info->sid.equals);
		if (with_turns)
			appendStringInfo(&buf, " RETURNING %s", info->turn.name);
		tl_plan_prepare(&list->finish, buf.data, lengthof(types), types);
	}
	if (tl_plan_is_scan_of(&list->finish, info->key_index))
	{
		Datum		values[2] = {ids, sid};

		n = execute_update(info, &list->finish, values, NULL,
						   with_turns ? SPI_OK_UPDATE_RETURNING :
						   SPI_OK_UPDATE);
		if (with_turns && n > 0)
		{
			*turns = palloc(sizeof(uint64) * n);
			for (int64 i = 0; i < n; i++)
			{
				bool		isnull;
				Datum		value = SPI_getbinval(SPI_tuptable->vals[i],
												  SPI_tuptable->tupdesc, 1,
												  &isnull);

				(*turns)[i] = tl_turn_hash(info, &value, isnull);
			}
		}
		return n;
	}
	tl_job_find_listed(info, sid, ids, array_type, &rows);
	n = tl_job_set(info, TL_CHANGE_FINISH, sid, &rows, NULL);
	if (with_turns && n > 0)
	{
		*turns = palloc(sizeof(uint64) * rows.n);
		for (int i = 0; i < rows.n; i++)
			(*turns)[i] = rows.rows[i].turn;
	}
	return n;
}

static TlJobListPlan *
list_plan(TlJobTableInfo *info, Oid array_type)
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

/* Rows that a sid has claimed; without a parameter, that nobody has. */
static void
append_owned(StringInfo buf, TlJobTableInfo *info, int sid_param)
{
	appendStringInfo(buf, "%s %s %s AND ", info->status.name,
					 info->status.equals, info->literals[TL_JOB_CLAIMED]);
	if (sid_param == 0)
		appendStringInfo(buf, "%s IS NULL", info->sid.name);
	else
		appendStringInfo(buf, "%s %s $%d", info->sid.name, info->sid.equals,
						 sid_param);
}

static void
append_used_up(StringInfo buf, TlJobTableInfo *info)
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

/* Rows that are listed by place or, in partitions, by key; returns the type. */
static Oid
append_listed(StringInfo buf, TlJobTableInfo *info)
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
		append_used_up(buf, info);
	}
	else if (turns)
		appendStringInfoString(buf, ", false");
	if (turns)
		appendStringInfo(buf, ", %s", info->turn.name);
}

/* Take over the result of a statement: places, ids, keys. */
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
