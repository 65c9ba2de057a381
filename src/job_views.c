/*-------------------------------------------------------------------------
 *
 * job_views.c
 *	  The functions behind the views job_workers and job_tables.
 *
 * As in views.c, rows are copied with one entry locked at a time, and turned
 * into tuples afterwards.  Job tables themselves are neither locked nor read.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "clock.h"
#include "compat.h"
#include "describe.h"
#include "funcapi.h"
#include "job_position.h"
#include "job_settings.h"
#include "job_table.h"
#include "job_worker.h"
#include "session.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(tokenlock_job_workers);
PG_FUNCTION_INFO_V1(tokenlock_job_tables);

typedef struct TlWorkerRow
{
	TlKey		key;
	Oid			role;
	int64		claimed;
	TimestampTz since;
	TimestampTz renewed_at;
	TlTime		expires;
	bool		live;
} TlWorkerRow;

typedef struct TlWorkerRows
{
	TlWorkerRow *rows;
	int			n;
	int			allocated;
} TlWorkerRows;

/* Allocates with the worker locked; an error there drops the lock. */
static void
copy_worker(const TlWorker *worker, bool live, void *arg)
{
	TlWorkerRows *rows = arg;
	TlWorkerRow *row;

	/* who has lapsed and left nothing behind is history */
	if (!live && worker->claimed == 0)
		return;
	if (rows->n == rows->allocated)
	{
		rows->allocated *= 2;
		rows->rows = repalloc_huge(rows->rows,
								   rows->allocated * sizeof(TlWorkerRow));
	}
	row = &rows->rows[rows->n++];
	row->key = worker->key;
	row->role = worker->role;
	row->claimed = worker->claimed;
	row->since = worker->since;
	row->renewed_at = worker->renewed_at;
	row->expires = worker->expires;
	row->live = live;
}

/* A sid that was only found in the table belongs to nobody that we know. */
static bool
is_visible(const TlWorkerRow *row)
{
	return OidIsValid(row->role) ? tl_may_see(row->role) :
		tl_may_see(ROLE_PG_READ_ALL_STATS);
}

/*
 * tokenlock_job_workers() returns setof (job_table regclass, sid text,
 * claimed bigint, since timestamptz, renewed_at timestamptz,
 * expires_at timestamptz, live boolean)
 */
Datum
tokenlock_job_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TlWorkerRows rows;

	tl_session_attach();
	InitMaterializedSRF(fcinfo, 0);
	rows.n = 0;
	rows.allocated = 64;
	rows.rows = palloc(rows.allocated * sizeof(TlWorkerRow));
	tl_worker_visit(copy_worker, &rows);

	for (int i = 0; i < rows.n; i++)
	{
		TlWorkerRow *row = &rows.rows[i];
		Datum		values[7];
		bool		nulls[7] = {0};

		/* the table may have been dropped */
		if (get_rel_name(row->key.relation) == NULL)
			continue;
		values[0] = ObjectIdGetDatum(row->key.relation);
		nulls[1] = tl_job_is_no_sid(&row->key);
		values[1] = is_visible(row) ?
			PointerGetDatum(cstring_to_text_with_len(row->key.name,
													 row->key.len)) :
			CStringGetTextDatum(TL_MASKED);
		values[2] = Int64GetDatum(row->claimed);
		values[3] = TimestampTzGetDatum(row->since);
		values[4] = TimestampTzGetDatum(row->renewed_at);
		nulls[5] = row->expires == TL_NEVER;
		if (!nulls[5])
			values[5] = TimestampTzGetDatum(tl_time_to_timestamptz(row->expires));
		values[6] = BoolGetDatum(row->live);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 values, nulls);
	}
	return (Datum) 0;
}

/* A job table in use. */
typedef struct TlTableRow
{
	Oid			relation;
	uint64		events[TL_JOB_EVENT_COUNT];
	int			waiting;
} TlTableRow;

typedef struct TlTableRows
{
	TlTableRow *rows;
	int			n;
	int			allocated;
} TlTableRows;

static TlTableRow *
add_table(TlTableRows *rows, Oid relation)
{
	TlTableRow *row;

	if (rows->n == rows->allocated)
	{
		rows->allocated *= 2;
		rows->rows = repalloc_huge(rows->rows,
								   rows->allocated * sizeof(TlTableRow));
	}
	row = &rows->rows[rows->n++];
	memset(row, 0, sizeof(TlTableRow));
	row->relation = relation;
	return row;
}

/* Allocates with the entry locked; an error there drops the lock. */
static void
copy_table(const TlJobTable *table, void *arg)
{
	TlTableRow *row = add_table(arg, table->key.relation);

	memcpy(row->events, table->events, sizeof(row->events));
	row->waiting = table->line.waiting;
}

static bool
is_listed(const TlTableRows *rows, Oid relation)
{
	for (int i = 0; i < rows->n; i++)
		if (rows->rows[i].relation == relation)
			return true;
	return false;
}

static void
set_if_null(TlJobSettings *settings, TlJobSetting which, Datum value)
{
	if (!settings->isnull[which])
		return;
	settings->values[which] = value;
	settings->isnull[which] = false;
}

/* Put in what holds for settings that the owner has not made. */
static void
fill_in_defaults(Oid relation, TlJobSettings *settings)
{
	AttrNumber	key = tl_job_primary_key(relation);

	if (settings->isnull[TL_SET_ID_COLUMN] && key != InvalidAttrNumber)
	{
		settings->values[TL_SET_ID_COLUMN] =
			CStringGetTextDatum(get_attname(relation, key, false));
		settings->isnull[TL_SET_ID_COLUMN] = false;
	}
	for (int i = 0; i < TL_SET_COUNT; i++)
		if (settings->isnull[i] && tl_job_default(i))
		{
			settings->values[i] = CStringGetTextDatum(tl_job_default(i));
			settings->isnull[i] = false;
		}
	if (settings->isnull[TL_SET_TTL])
	{
		Interval   *ttl = palloc0(sizeof(Interval));

		ttl->time = (TlTime) tl_job_ttl * 1000;
		settings->values[TL_SET_TTL] = IntervalPGetDatum(ttl);
		settings->isnull[TL_SET_TTL] = false;
	}
	set_if_null(settings, TL_SET_WAKE, BoolGetDatum(false));
	set_if_null(settings, TL_SET_PAUSED, BoolGetDatum(false));
}

/*
 * tokenlock_job_tables() returns setof (job_table regclass, the settings in
 * the order of TlJobSetting, claimed bigint, finished bigint,
 * taken_over bigint, handed_again bigint, waiting bigint)
 */
Datum
tokenlock_job_tables(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TlTableRows rows;
	List	   *set;
	ListCell   *cell;

	tl_session_attach();
	InitMaterializedSRF(fcinfo, 0);
	rows.n = 0;
	rows.allocated = 64;
	rows.rows = palloc(rows.allocated * sizeof(TlTableRow));
	tl_position_visit(copy_table, &rows);
	set = tl_settings_tables();
	foreach(cell, set)
		if (!is_listed(&rows, lfirst_oid(cell)))
			add_table(&rows, lfirst_oid(cell));

	for (int i = 0; i < rows.n; i++)
	{
		TlTableRow *row = &rows.rows[i];
		TlJobSettings settings;
		Datum		values[1 + TL_SET_COUNT + TL_JOB_EVENT_COUNT + 1];
		bool		nulls[1 + TL_SET_COUNT + TL_JOB_EVENT_COUNT + 1] = {0};

		/* the table may have been dropped */
		if (get_rel_name(row->relation) == NULL)
			continue;
		tl_settings_read(row->relation, &settings);
		fill_in_defaults(row->relation, &settings);
		values[0] = ObjectIdGetDatum(row->relation);
		memcpy(values + 1, settings.values, sizeof(settings.values));
		memcpy(nulls + 1, settings.isnull, sizeof(settings.isnull));
		for (int j = 0; j < TL_JOB_EVENT_COUNT; j++)
			values[1 + TL_SET_COUNT + j] = Int64GetDatum(row->events[j]);
		values[1 + TL_SET_COUNT + TL_JOB_EVENT_COUNT] =
			Int64GetDatum(row->waiting);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 values, nulls);
	}
	return (Datum) 0;
}
