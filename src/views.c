/*-------------------------------------------------------------------------
 *
 * views.c
 *	  The functions behind the views of tokens.
 *
 * The rows are copied one token at a time under its lock, and masked and
 * turned into tuples afterwards, as that needs the catalogs.  So the view is
 * exact for each token, but not a snapshot of all of them.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "clock.h"
#include "compat.h"
#include "describe.h"
#include "funcapi.h"
#include "line.h"
#include "miscadmin.h"
#include "recover.h"
#include "session.h"
#include "stats.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(tokenlock_holders);
PG_FUNCTION_INFO_V1(tokenlock_waiters);
PG_FUNCTION_INFO_V1(tokenlock_stats);
PG_FUNCTION_INFO_V1(tokenlock_stats_by_name);

/* A copied holder or waiter. */
typedef struct TlViewRow
{
	TlKey		key;
	Oid			role;
	int			procno;
	int			pid;
	TlScope		scope;			/* of a holder */
	bool		shared;			/* of a holder */
	uint64		fence;			/* of a holder */
	int64		place;			/* of a waiter */
	TlTime		since;			/* granted or waiting since */
	TlTime		until;			/* end of the lease or the wait */
	int			owner_len;
	char		owner[TL_NAME_MAX];
} TlViewRow;

typedef struct TlViewRows
{
	TlViewRow  *rows;
	int			n;
	int			allocated;
} TlViewRows;

/* Allocates with the token locked; an error there drops the lock. */
static TlViewRow *
add_row(TlViewRows *rows, const TlToken *token, int owner_len,
		const char *owner)
{
	TlViewRow  *row;

	if (rows->n == rows->allocated)
	{
		rows->allocated *= 2;
		rows->rows = repalloc_huge(rows->rows,
								   rows->allocated * sizeof(TlViewRow));
	}
	row = &rows->rows[rows->n++];
	row->key = token->key;
	row->owner_len = owner_len;
	memcpy(row->owner, owner, owner_len);
	return row;
}

static void
copy_holders(TlToken *token, TlTime now, void *arg)
{
	for (TlHolder *holder = tl_holder_at(token->holders);
		 holder != NULL;
		 holder = tl_holder_at(holder->next))
	{
		TlViewRow  *row;

		if (holder->ended || holder->expires <= now)
			continue;
		row = add_row(arg, token, holder->owner_len, holder->owner);
		row->role = holder->role;
		row->procno = holder->procno;
		row->pid = holder->pid;
		row->scope = holder->scope;
		row->shared = holder->capacity == 0;
		row->fence = holder->fence;
		row->since = holder->acquired;
		row->until = holder->expires;
	}
}

static void
copy_waiters(TlToken *token, TlTime now, void *arg)
{
	for (TlWaiter *waiter = tl_waiter_at(token->waiters);
		 waiter != NULL;
		 waiter = tl_waiter_at(waiter->next))
	{
		TlViewRow  *row;

		if (waiter->procno < 0 && waiter->deadline <= now)
			continue;
		row = add_row(arg, token, waiter->owner_len, waiter->owner);
		row->role = waiter->role;
		row->procno = waiter->procno;
		row->pid = waiter->pid;
		row->place = tl_line_number(token, waiter);
		row->since = waiter->since;
		row->until = waiter->deadline;
	}
}

static TlViewRows *
collect(FunctionCallInfo fcinfo, TlTokenVisitor visit)
{
	TlViewRows *rows = palloc(sizeof(TlViewRows));

	tl_session_attach();
	if (!RecoveryInProgress())
		tl_recover();
	InitMaterializedSRF(fcinfo, 0);
	rows->n = 0;
	rows->allocated = 64;
	rows->rows = palloc(rows->allocated * sizeof(TlViewRow));
	tl_token_visit(visit, rows);
	return rows;
}

static void
put_text(Datum *value, bool *null, const char *data, int len, bool masked)
{
	*null = len == 0;
	if (!*null)
		*value = masked ? CStringGetTextDatum(TL_MASKED) :
			PointerGetDatum(cstring_to_text_with_len(data, len));
}

static void
put_role(Datum *value, bool *null, Oid role, bool masked)
{
	char	   *name = masked ? NULL : GetUserNameFromId(role, true);

	*null = name == NULL;
	if (!*null)
		*value = DirectFunctionCall1(namein, CStringGetDatum(name));
}

static void
put_time(Datum *value, bool *null, TlTime when)
{
	*null = when == TL_NEVER;
	if (!*null)
		*value = TimestampTzGetDatum(tl_time_to_timestamptz(when));
}

/*
 * A lease outlives the session that took it; its process is shown until then.
 * The slot of a process that has ended keeps its pid until the next one takes
 * it, so the list of running processes decides.
 */
static bool
is_alive(const TlViewRow *row)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[row->procno];

	return proc->pid == row->pid && BackendPidGetProc(row->pid) == proc;
}

/*
 * tokenlock_holders() returns setof (name text, owner text, role name,
 * pid integer, scope text, shared boolean, fence bigint,
 * acquired_at timestamptz, expires_at timestamptz)
 */
Datum
tokenlock_holders(PG_FUNCTION_ARGS)
{
	static const char *const scopes[] = {
		[TL_SCOPE_OWNER] = "owner",
		[TL_SCOPE_TRANSACTION] = "transaction",
		[TL_SCOPE_SESSION] = "session",
	};
	TlViewRows *rows = collect(fcinfo, copy_holders);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	for (int i = 0; i < rows->n; i++)
	{
		TlViewRow  *row = &rows->rows[i];
		bool		masked = !tl_may_see(row->role);
		Datum		values[9];
		bool		nulls[9] = {0};

		put_text(&values[0], &nulls[0], row->key.name, row->key.len, masked);
		put_text(&values[1], &nulls[1], row->owner, row->owner_len, masked);
		put_role(&values[2], &nulls[2], row->role, masked);
		values[3] = Int32GetDatum(row->pid);
		nulls[3] = masked || !is_alive(row);
		values[4] = CStringGetTextDatum(scopes[row->scope]);
		values[5] = BoolGetDatum(row->shared);
		values[6] = Int64GetDatum((int64) row->fence);
		put_time(&values[7], &nulls[7], row->since);
		put_time(&values[8], &nulls[8], row->until);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 values, nulls);
	}
	return (Datum) 0;
}

/*
 * tokenlock_waiters() returns setof (name text, place bigint, owner text,
 * role name, pid integer, waiting_since timestamptz, deadline timestamptz)
 */
Datum
tokenlock_waiters(PG_FUNCTION_ARGS)
{
	TlViewRows *rows = collect(fcinfo, copy_waiters);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	for (int i = 0; i < rows->n; i++)
	{
		TlViewRow  *row = &rows->rows[i];
		bool		masked = !tl_may_see(row->role);
		Datum		values[7];
		bool		nulls[7] = {0};

		put_text(&values[0], &nulls[0], row->key.name, row->key.len, masked);
		values[1] = Int64GetDatum(row->place);
		put_text(&values[2], &nulls[2], row->owner, row->owner_len, masked);
		put_role(&values[3], &nulls[3], row->role, masked);
		values[4] = Int32GetDatum(row->pid);
		nulls[4] = masked || row->procno < 0;
		put_time(&values[5], &nulls[5], row->since);
		put_time(&values[6], &nulls[6], row->until);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 values, nulls);
	}
	return (Datum) 0;
}

/* A length of time as an interval. */
static Datum
interval_of(TlTime time)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = time;
	return IntervalPGetDatum(interval);
}

/* The columns that both views of counters have, in the order of TlEvent. */
static void
put_counts(Datum *values, const uint64 *counts)
{
	for (int i = 0; i < TL_EVENT_COUNT; i++)
		values[i] = i == TL_EVENT_WAIT_TIME ?
			interval_of(counts[i]) : Int64GetDatum((int64) counts[i]);
}

static void
count_entry(TlToken *token, TlTime now, void *arg)
{
	if (DsaPointerIsValid(token->holders) || DsaPointerIsValid(token->waiters))
		(*(int64 *) arg)++;
}

/*
 * tokenlock_stats() returns (gets bigint, grants bigint, refusals bigint,
 * waits bigint, wait_time interval, timeouts bigint, expiries bigint,
 * puts bigint, breaks bigint, entries bigint, memory bigint,
 * grace_until timestamptz)
 */
Datum
tokenlock_stats(PG_FUNCTION_ARGS)
{
	uint64		totals[TL_EVENT_COUNT];
	int64		entries = 0;
	TupleDesc	tupdesc;
	Datum		values[TL_EVENT_COUNT + 3];
	bool		nulls[TL_EVENT_COUNT + 3] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	tl_session_attach();
	if (!RecoveryInProgress())
		tl_recover();
	tl_stats_read(totals);
	tl_token_visit(count_entry, &entries);
	put_counts(values, totals);
	values[TL_EVENT_COUNT] = Int64GetDatum(entries);
	values[TL_EVENT_COUNT + 1] = Int64GetDatum((int64) tl_shmem_used());
	nulls[TL_EVENT_COUNT + 2] = tl_recover_grace_until() == 0;
	if (!nulls[TL_EVENT_COUNT + 2])
		values[TL_EVENT_COUNT + 2] =
			TimestampTzGetDatum(tl_time_to_timestamptz(tl_recover_grace_until()));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}

/*
 * tokenlock_stats_by_name() returns setof (name text, the counters of
 * tokenlock_stats, longest_wait interval, longest_hold interval)
 */
Datum
tokenlock_stats_by_name(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TlNameStats *names;
	int			n;
	bool		masked;

	tl_session_attach();
	InitMaterializedSRF(fcinfo, 0);
	/* nobody's in particular, so only who may see everything sees a name */
	masked = !tl_may_see_all();
	names = tl_stats_names(&n);
	for (int i = 0; i < n; i++)
	{
		Datum		values[TL_EVENT_COUNT + 3];
		bool		nulls[TL_EVENT_COUNT + 3] = {0};

		put_text(&values[0], &nulls[0], names[i].key.name, names[i].key.len,
				 masked);
		put_counts(&values[1], names[i].counts);
		values[TL_EVENT_COUNT + 1] = interval_of(names[i].longest_wait);
		values[TL_EVENT_COUNT + 2] = interval_of(names[i].longest_hold);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 values, nulls);
	}
	return (Datum) 0;
}
