/*-------------------------------------------------------------------------
 *
 * job_turn_sql.c
 *	  The statements that find ready jobs where those of one key take turns.
 *
 * As in job_sql.c, all names and operators are qualified.  What is asked of
 * the other rows of a key is asked in scalar subqueries with a limit: these
 * the planner leaves as they are, looks into an index for each key, while an
 * EXISTS could become a join with all rows.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "job_look.h"
#include "job_plan.h"
#include "job_sql.h"
#include "job_turn_find.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* The last part of a qualified name. */
static const char *
column_alias(TlJobTableInfo *info)
{
	return info->turn_name + strlen(info->turn_alias) + 1;
}

/* The value of the turn is known by its name outside of this subquery. */
static void
append_of_turn(StringInfo buf, TlJobTableInfo *info)
{
	appendStringInfo(buf, " FROM %s WHERE %s %s %s AND ", info->from,
					 info->turn.name, info->turn.equals, info->turn_name);
}

/* The id of the first of its rows that are not finished. */
static void
append_first(StringInfo buf, TlJobTableInfo *info)
{
	appendStringInfo(buf, "(SELECT %s", info->id.name);
	append_of_turn(buf, info);
	tl_job_append_ready(buf, info, 0);
	appendStringInfo(buf, " ORDER BY %s LIMIT 1)", info->order);
}

/* True or null: is one claimed? */
static void
append_claimed(StringInfo buf, TlJobTableInfo *info)
{
	appendStringInfoString(buf, "(SELECT true");
	append_of_turn(buf, info);
	appendStringInfo(buf, "%s %s %s LIMIT 1)", info->status.name,
					 info->status.equals, info->literals[TL_JOB_CLAIMED]);
}

static Datum
present_time(TlJobTableInfo *info, char *isnull)
{
	*isnull = info->run_at.attnum == InvalidAttrNumber ? 'n' : ' ';
	return *isnull == 'n' ? (Datum) 0 :
		TimestampTzGetDatum(GetCurrentTimestamp());
}

/* Parameters: 1 and 2 the ends of the range, 3 the present time. */
Portal
tl_turn_open(TlJobTableInfo *info, const TlJobFind *find)
{
	TlJobPlan  *plan = &info->walk[find->lower][find->hi != NULL];
	Datum		values[3] = {0};
	char		nulls[4] = "nn ";
	int			level = tl_job_begin_path(info);
	Portal		portal;

	if (plan->plan == NULL)
	{
		StringInfoData buf;
		Oid			types[3] = {info->id.type, info->id.type, TIMESTAMPTZOID};

		initStringInfo(&buf);
		appendStringInfo(&buf, "SELECT %s, %s FROM %s WHERE ", info->id.name,
						 info->turn.name, info->from);
		tl_job_append_ready(&buf, info, 3);
		if (find->lower != TL_LOWER_NONE)
			appendStringInfo(&buf, " AND %s %s $1", info->id.name,
							 find->lower == TL_LOWER_FROM ?
							 info->greater_equal : info->greater);
		if (find->hi)
			appendStringInfo(&buf, " AND %s %s $2", info->id.name,
							 info->less_equal);
		appendStringInfo(&buf, " ORDER BY %s", info->order);
		tl_plan_prepare(plan, buf.data, lengthof(types), types);
	}
	if (find->lower != TL_LOWER_NONE)
	{
		values[0] = tl_point_value(find->lo, &info->key);
		nulls[0] = ' ';
	}
	if (find->hi)
	{
		values[1] = tl_point_value(find->hi, &info->key);
		nulls[1] = ' ';
	}
	values[2] = present_time(info, &nulls[2]);
	portal = tl_plan_open(plan, values, nulls);
	tl_job_end_path(level);
	return portal;
}

/*
 * The index is gone through from one key to the next.  Parameters: 1 the
 * limit, 2 the present time.
 */
static void
prepare_heads_of_all(TlJobTableInfo *info, TlJobPlan *plan)
{
	StringInfoData ready;
	StringInfoData buf;
	Oid			types[2] = {INT8OID, TIMESTAMPTZOID};

	initStringInfo(&ready);
	tl_job_append_ready(&ready, info, 0);
	initStringInfo(&buf);
	appendStringInfo(&buf,
					 "WITH RECURSIVE %s (%s) AS ("
					 "(SELECT %s FROM %s WHERE %s AND %s IS NOT NULL"
					 " ORDER BY %s LIMIT 1) UNION ALL "
					 "SELECT (SELECT %s FROM %s WHERE %s AND %s %s %s"
					 " ORDER BY %s LIMIT 1) FROM %s WHERE %s IS NOT NULL)",
					 info->turn_alias, column_alias(info),
					 info->turn.name, info->from, ready.data, info->turn.name,
					 info->turn.name,
					 info->turn.name, info->from, ready.data, info->turn.name,
					 info->turn_greater, info->turn_name,
					 info->turn.name, info->turn_alias, info->turn_name);
	appendStringInfo(&buf,
					 " SELECT %s, %s FROM ((SELECT %s.* FROM %s CROSS JOIN"
					 " LATERAL (SELECT %s.*",
					 info->id.name, info->turn.name, info->alias,
					 info->turn_alias, info->alias);
	append_of_turn(&buf, info);
	appendStringInfo(&buf, "%s ORDER BY %s LIMIT 1) AS %s) UNION ALL"
					 " (SELECT %s.* FROM %s WHERE ",
					 ready.data, info->order, info->alias, info->alias,
					 info->from);
	tl_job_append_ready(&buf, info, 2);
	appendStringInfo(&buf,
					 " AND %s IS NULL ORDER BY %s LIMIT $1)) AS %s WHERE ",
					 info->turn.name, info->order, info->alias);
	tl_job_append_ready(&buf, info, 2);
	appendStringInfo(&buf, " ORDER BY %s", info->order);
	tl_plan_prepare_by_turn(info, plan, buf.data, lengthof(types), types);
}

Portal
tl_turn_open_heads(TlJobTableInfo *info, int64 limit)
{
	TlJobPlan  *plan = &info->walk_turns;
	Datum		values[2] = {Int64GetDatum(limit)};
	char		nulls[3] = "  ";
	int			level = tl_job_begin_path(info);
	Portal		portal;

	if (plan->plan == NULL)
		prepare_heads_of_all(info, plan);
	values[1] = present_time(info, &nulls[1]);
	portal = tl_plan_open(plan, values, nulls);
	tl_job_end_path(level);
	return portal;
}

/*
 * Parameters: 1 the ids, 2 the present time.  What is asked of the row itself
 * stands beside the lock, so that its newest version is asked; what is asked
 * of others needs the turn.
 */
static void
prepare_verify(TlJobTableInfo *info, TlJobPlan *plan, bool locking)
{
	StringInfoData buf;
	Oid			types[2] = {info->key_array_type, TIMESTAMPTZOID};

	initStringInfo(&buf);
	if (locking)
		tl_job_append_columns(&buf, info);
	else
		appendStringInfo(&buf, "SELECT %s, %s.tableoid, %s.ctid",
						 info->id.name, info->alias, info->alias);
	appendStringInfo(&buf,
					 " FROM %s, LATERAL (SELECT %s AS %s) AS %s"
					 " WHERE %s %s ANY ($1) AND ",
					 info->from, info->turn.name, column_alias(info),
					 info->turn_alias, info->id.name, info->id.equals);
	tl_job_append_ready(&buf, info, 2);
	appendStringInfo(&buf, " AND (%s IS NULL OR (", info->turn.name);
	append_claimed(&buf, info);
	appendStringInfoString(&buf, " IS NULL AND ");
	append_first(&buf, info);
	appendStringInfo(&buf, " %s %s))", info->id.equals, info->id.name);
	if (locking)
		appendStringInfo(&buf, " ORDER BY %s FOR %s OF %s SKIP LOCKED",
						 info->order,
						 info->strong_lock ? "UPDATE" : "NO KEY UPDATE",
						 info->alias);
	tl_plan_prepare_by_turn(info, plan, buf.data, lengthof(types), types);
}

static ArrayType *
id_array(TlJobTableInfo *info, const Datum *ids, int n)
{
	return construct_array(unconstify(Datum *, ids), n, info->id.type,
						   info->key.len, info->key.byval, info->key.align);
}

/* By a snapshot of this moment, without a lock. */
static int
verify_now(TlJobTableInfo *info, Datum *values, const char *nulls)
{
	TlJobPlan  *plan = &info->verify[false];

	if (plan->plan == NULL)
		prepare_verify(info, plan, false);
	return (int) tl_plan_execute_latest(plan, values, nulls);
}

bool
tl_turn_any_free(TlJobTableInfo *info, const Datum *ids, int n)
{
	Datum		values[2];
	char		nulls[3] = "  ";
	int			level = tl_job_begin_path(info);
	SPITupleTable *result;
	bool		found = false;

	values[0] = PointerGetDatum(id_array(info, ids, n));
	values[1] = present_time(info, &nulls[1]);
	n = verify_now(info, values, nulls);
	tl_job_end_path(level);
	result = SPI_tuptable;
	for (int i = 0; i < n && !found; i++)
	{
		bool		isnull;
		Datum		relation = SPI_getbinval(result->vals[i], result->tupdesc,
											 2, &isnull);
		Datum		tid = SPI_getbinval(result->vals[i], result->tupdesc, 3,
										&isnull);

		found = !info->heap ||
			tl_look_is_free(DatumGetObjectId(relation),
							(ItemPointer) DatumGetPointer(tid));
	}
	SPI_freetuptable(result);
	return found;
}

/*
 * The snapshot of a REPEATABLE READ transaction may be older than the turn:
 * ask the newest first.  What that lets through and the transaction sees
 * differently is an error when it is locked.
 */
static ArrayType *
verified_now(TlJobTableInfo *info, Datum *values, const char *nulls)
{
	int			n = verify_now(info, values, nulls);
	Datum	   *ids;

	ids = palloc(sizeof(Datum) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		ids[i] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
							   1, &isnull);
	}
	return id_array(info, ids, n);
}

void
tl_turn_verify(TlJobTableInfo *info, const Datum *ids, int n, TlJobRows *rows)
{
	TlJobPlan  *plan = &info->verify[true];
	Datum		values[2];
	char		nulls[3] = "  ";
	int			level = tl_job_begin_path(info);

	values[0] = PointerGetDatum(id_array(info, ids, n));
	values[1] = present_time(info, &nulls[1]);
	if (IsolationUsesXactSnapshot())
		values[0] = PointerGetDatum(verified_now(info, values, nulls));
	if (plan->plan == NULL)
		prepare_verify(info, plan, true);
	tl_plan_execute_lock(info, plan, values, nulls);
	tl_job_end_path(level);
	tl_job_add_rows(info, rows);
}

void
tl_turn_heads(TlJobTableInfo *info, TlTurnRow *rows, int n, bool *claimed)
{
	TlJobPlan  *plan = &info->heads;
	Datum	   *turns = palloc(sizeof(Datum) * n);
	Datum		values[1];
	int			level = tl_job_begin_path(info);

	if (plan->plan == NULL)
	{
		StringInfoData buf;

		initStringInfo(&buf);
		appendStringInfoString(&buf, "SELECT ");
		append_first(&buf, info);
		appendStringInfoString(&buf, ", ");
		append_claimed(&buf, info);
		appendStringInfo(&buf, " FROM pg_catalog.unnest($1) AS %s (%s)",
						 info->turn_alias, column_alias(info));
		tl_plan_prepare_by_turn(info, plan, buf.data, 1,
								&info->turn_array_type);
	}
	for (int i = 0; i < n; i++)
		turns[i] = rows[i].value;
	values[0] = PointerGetDatum(construct_array(turns, n, info->turn.type,
												info->turn_type.len,
												info->turn_type.byval,
												info->turn_type.align));
	tl_plan_execute(plan, values, NULL, SPI_OK_SELECT);
	tl_job_end_path(level);
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		rows[i].id = SPI_getbinval(SPI_tuptable->vals[i],
								   SPI_tuptable->tupdesc, 1, &isnull);
		rows[i].id_known = !isnull;
		if (!isnull && tl_point_needs_detoast(&info->key, rows[i].id))
			rows[i].id = PointerGetDatum(PG_DETOAST_DATUM(rows[i].id));
		(void) SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2,
							 &isnull);
		claimed[i] = !isnull;
	}
}
