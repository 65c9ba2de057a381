/*-------------------------------------------------------------------------
 *
 * job_security.c
 *	  Row security: jobs that may be seen but not updated.
 *
 * A statement that locks rows silently leaves out those that the policies for
 * UPDATE do not let through.  A worker that gets no rows would take the queue
 * for empty, so look whether that is the reason.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "job_sql.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/* Ready rows that are looked at. */
#define TL_SAMPLE	100

/* The keys of (some) ready rows that may be seen; only those in a list. */
static ArrayType *
visible_keys(TlJobTableInfo *info, ArrayType *among)
{
	StringInfoData buf;
	Oid			types[2] = {TIMESTAMPTZOID, info->key_array_type};
	Datum		values[2] = {TimestampTzGetDatum(GetCurrentTimestamp()),
	PointerGetDatum(among)};
	int			level = tl_job_begin_path(info);
	Datum	   *keys;
	ArrayType  *array;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s FROM %s WHERE ", info->id.name,
					 info->from);
	tl_job_append_ready(&buf, info, 1);
	if (among)
		appendStringInfo(&buf, " AND %s %s ANY ($2)", info->id.name,
						 info->id.equals);
	appendStringInfo(&buf, " LIMIT %d", TL_SAMPLE);
	if (SPI_execute_with_args(buf.data, among ? 2 : 1, types, values, NULL,
							  false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look for jobs");
	tl_job_end_path(level);

	keys = palloc(sizeof(Datum) * TL_SAMPLE);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;

		keys[i] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
								1, &isnull);
	}
	array = construct_array(keys, (int) SPI_processed, info->id.type,
							info->key.len, info->key.byval, info->key.align);
	SPI_freetuptable(SPI_tuptable);
	return array;
}

static int
length(ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

/*
 * How many of these may be updated?  -1 if somebody has locked one, so that it
 * cannot be told.  The weakest lock will do for the question, and is dropped
 * with the subtransaction.
 */
static int
count_updatable(TlJobTableInfo *info, ArrayType *keys)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Oid			types[1] = {info->key_array_type};
	Datum		values[1] = {PointerGetDatum(keys)};
	StringInfoData buf;
	volatile int n = -1;

	initStringInfo(&buf);
	appendStringInfo(&buf,
					 "SELECT FROM %s WHERE %s %s ANY ($1)"
					 " FOR KEY SHARE NOWAIT",
					 info->from, info->id.name, info->id.equals);

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		if (SPI_execute_with_args(buf.data, 1, types, values, NULL, false,
								  0) == SPI_OK_SELECT)
			n = (int) SPI_processed;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(error);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return n;
}

void
tl_job_check_hidden(TlJobTableInfo *info)
{
	ArrayType  *keys = visible_keys(info, NULL);
	int			updatable;

	if (length(keys) == 0)
		return;
	updatable = count_updatable(info, keys);
	if (updatable < 0 || updatable == length(keys))
		return;

	/* some may have gone meanwhile */
	if (length(visible_keys(info, keys)) < length(keys))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("ready jobs of table \"%s\" may be seen but not updated",
					get_rel_name(info->relation)),
			 errdetail("The row security policies for UPDATE leave them out."),
			 errhint("Let the policies for SELECT leave them out, too, or those for UPDATE let them through.")));
}
