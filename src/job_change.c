/*-------------------------------------------------------------------------
 *
 * job_change.c
 *	  The statements that change jobs.
 *
 * Each is an UPDATE of rows that this transaction has locked, found again by
 * their places or, in partitioned tables, by their keys; a list of ids is
 * finished in one statement where that locks in the key's order.  What
 * job_sql.c says of its statements holds for these, too.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "job_plan.h"
#include "job_sql.h"
#include "job_turn.h"
#include "job_wait.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

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
	types[0] = tl_job_append_listed(&buf, info);
	if (change == TL_CHANGE_CLAIM)
	{
		appendStringInfo(&buf, " RETURNING %s, %s, (", info->id.name,
						 info->alias);
		tl_job_append_owned(&buf, info, 2);
		appendStringInfoString(&buf, ") IS TRUE");
	}
	tl_plan_prepare(plan, buf.data, lengthof(types), types);
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
	values[0] = tl_job_row_array(info, rows);
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
	tl_job_append_used_up(&used_up, info);
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
	types[0] = tl_job_append_listed(&buf, info);
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
	values[0] = tl_job_row_array(info, rows);
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
 * Parameters: 1 the list, 2 the sid.
 *
 * One statement, if it can be planned as a scan of the key's index, which
 * goes through a list in the key's order and so locks in that order.
 */
int64
tl_job_finish(TlJobTableInfo *info, Datum sid, Datum ids, Oid array_type,
			  uint64 **turns)
{
	TlJobListPlan *list = tl_job_list_plan(info, array_type);
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
