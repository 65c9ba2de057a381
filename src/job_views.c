/*-------------------------------------------------------------------------
 *
 * job_views.c
 *	  The function behind the view job_workers.
 *
 * As in views.c, rows are copied with one worker locked at a time, and turned
 * into tuples afterwards.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "clock.h"
#include "describe.h"
#include "funcapi.h"
#include "job_worker.h"
#include "session.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(tokenlock_job_workers);

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
