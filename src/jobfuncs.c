/*-------------------------------------------------------------------------
 *
 * jobfuncs.c
 *	  SQL entry points of the job functions: arguments in, answers out.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "args.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "job_claim.h"
#include "job_plan.h"
#include "job_ready.h"
#include "job_wait.h"
#include "job_xact.h"
#include "miscadmin.h"
#include "procedure.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(tokenlock_claim_jobs);
PG_FUNCTION_INFO_V1(tokenlock_claim_jobs_text);
PG_FUNCTION_INFO_V1(tokenlock_finish_jobs);
PG_FUNCTION_INFO_V1(tokenlock_fail_jobs);
PG_FUNCTION_INFO_V1(tokenlock_release_jobs);
PG_FUNCTION_INFO_V1(tokenlock_release_all_jobs);
PG_FUNCTION_INFO_V1(tokenlock_renew_jobs);
PG_FUNCTION_INFO_V1(tokenlock_wait_jobs);

/* A call of claim_jobs. */
typedef struct TlClaimCall
{
	FunctionCallInfo fcinfo;
	Oid			row_type;
	Oid			relation;
	text	   *sid;
	int64		batch;
	TlJobList	done;
	TlTime		wait;
	TlTime		ttl;
	bool		resume;
	Tuplestorestate *result;
} TlClaimCall;

static bool claim_once(TlClaimCall *claim, bool first, bool waiting,
					   bool last);
static void claim_waiting(TlClaimCall *claim);
static bool look_for_jobs(Oid relation, bool last);
static void end_look(TlJobTableInfo *info, TimestampTz started, bool found,
					 bool handed_out, bool last);
static Oid	get_row_type(FunctionCallInfo fcinfo, Oid *relation);
static Tuplestorestate *begin_result(FunctionCallInfo fcinfo, Oid row_type);
static Oid	get_table(FunctionCallInfo fcinfo, int n);
static int64 get_batch(FunctionCallInfo fcinfo, int n);
static void get_list(FunctionCallInfo fcinfo, int n, TlJobList *list);
static void connect_spi(void);

/*
 * claim_jobs(job anyelement, sid, batch, done, wait, ttl, resume)
 * returns setof anyelement
 */
Datum
tokenlock_claim_jobs(PG_FUNCTION_ARGS)
{
	TlClaimCall claim;

	tl_job_attach();
	claim.fcinfo = fcinfo;
	claim.row_type = get_row_type(fcinfo, &claim.relation);
	claim.sid = tl_arg_name(fcinfo, 1, "sid");
	claim.batch = get_batch(fcinfo, 2);
	if (PG_ARGISNULL(3))
		claim.done.n = 0;
	else
		get_list(fcinfo, 3, &claim.done);
	claim.wait = tl_arg_wait(fcinfo, 4);
	claim.ttl = tl_arg_ttl(fcinfo, 5);
	if (PG_ARGISNULL(6))
		tl_error_null("resume");
	claim.resume = PG_GETARG_BOOL(6);
	if (claim.wait != 0 && IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot wait for jobs in a REPEATABLE READ or SERIALIZABLE transaction"),
				 errdetail("Its snapshot would not show the jobs that come."),
				 errhint("Wait with CALL wait_jobs outside of the transaction, or claim under READ COMMITTED.")));
	if (claim.wait != 0 && claim.batch > 0)
		claim_waiting(&claim);
	else
		(void) claim_once(&claim, true, false, true);
	return (Datum) 0;
}

/*
 * Claim, and put the rows into the result.  Answers whether to sleep and claim
 * again.  That is not so when the call has finished jobs, which are to be
 * committed; nor with rows locked that others might want.
 */
static bool
claim_once(TlClaimCall *claim, bool first, bool waiting, bool last)
{
	TlJobCall	call;
	HeapTupleHeader *rows;
	TimestampTz started = GetCurrentTimestamp();
	uint64		locked = tl_plan_rows_locked();
	int64		done = 0;
	int64		n;

	tl_job_begin(&call, claim->relation, claim->sid, TL_CALL_CLAIM,
				 claim->ttl);

	if (first)
		claim->result = begin_result(claim->fcinfo, claim->row_type);
	connect_spi();
	if (first)
		done = tl_job_finish_list(&call, &claim->done);
	if (first && waiting)
		tl_job_wait_join(call.info);
	n = tl_job_claim(&call, claim->batch, claim->resume, &rows);
	for (int64 i = 0; i < n; i++)
	{
		HeapTupleData tuple;

		tuple.t_len = HeapTupleHeaderGetDatumLength(rows[i]);
		ItemPointerSetInvalid(&tuple.t_self);
		tuple.t_tableOid = InvalidOid;
		tuple.t_data = rows[i];
		tuplestore_puttuple(claim->result, &tuple);
	}
	if (waiting)
	{
		last = last || n > 0 || done > 0 || tl_plan_rows_locked() != locked;
		end_look(call.info, started, n > 0, true, last);
	}
	SPI_finish();
	return !last;
}

static void
claim_waiting(TlClaimCall *claim)
{
	TlTime		deadline = tl_time_add(tl_now(), claim->wait);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "tokenlock claim",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(context);
	bool		last = false;

	for (bool first = true; claim_once(claim, first, true, last);
		 first = false)
	{
		MemoryContextReset(context);
		last = tl_job_wait_sleep(deadline);

		/* our lock on the table keeps off all changes but those of settings */
		AcceptInvalidationMessages();
	}
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);
}

/* A waiter has looked.  It leaves the line if that was the last time. */
static void
end_look(TlJobTableInfo *info, TimestampTz started, bool found,
		 bool handed_out, bool last)
{
	TlTime		due = TL_NEVER;

	/* jobs that are due later have come together with those that were found */
	if (!last || tl_job_wait_others(info->relation))
		due = tl_job_next_due(info, started);
	if (last)
		tl_job_wait_leave(info, found, handed_out, due);
	else
		tl_job_wait_in_vain(info, due);
}

/*
 * claim_jobs(job_table text, ...): there is no such call
 */
Datum
tokenlock_claim_jobs_text(PG_FUNCTION_ARGS)
{
	const char *name = PG_ARGISNULL(0) ? "job_table" :
		text_to_cstring(PG_GETARG_TEXT_PP(0));

	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("the job table must be given as a row type, not as text"),
			 errhint("Write SELECT * FROM claim_jobs(NULL::%s, ...).", name)));
	PG_RETURN_NULL();
}

/*
 * finish_jobs(job_table regclass, sid, ids) returns bigint
 */
Datum
tokenlock_finish_jobs(PG_FUNCTION_ARGS)
{
	TlJobCall	call;
	TlJobList	list;
	Oid			relation;
	text	   *sid;
	int64		n;

	tl_job_attach();
	relation = get_table(fcinfo, 0);
	sid = tl_arg_name(fcinfo, 1, "sid");
	get_list(fcinfo, 2, &list);
	tl_job_begin(&call, relation, sid, TL_CALL_RETURN, 0);
	connect_spi();
	n = tl_job_finish_list(&call, &list);
	SPI_finish();
	PG_RETURN_INT64(n);
}

/*
 * fail_jobs(job_table regclass, sid, ids, error, retry_in, give_up)
 * returns bigint
 */
Datum
tokenlock_fail_jobs(PG_FUNCTION_ARGS)
{
	TlJobCall	call;
	TlJobList	list;
	TlJobFailure failure;
	Oid			relation;
	text	   *sid;
	int64		n;

	tl_job_attach();
	relation = get_table(fcinfo, 0);
	sid = tl_arg_name(fcinfo, 1, "sid");
	get_list(fcinfo, 2, &list);
	failure.error = PG_ARGISNULL(3) ? NULL : PG_GETARG_TEXT_PP(3);
	failure.retry_in = PG_ARGISNULL(4) ? NULL : PG_GETARG_INTERVAL_P(4);
	if (failure.retry_in && tl_interval_to_time(failure.retry_in) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retry_in must not be negative"),
				 errhint("Give '0' to have the jobs tried again at once, or NULL for a time that grows with the attempts.")));
	if (PG_ARGISNULL(5))
		tl_error_null("give_up");
	failure.give_up = PG_GETARG_BOOL(5);
	tl_job_begin(&call, relation, sid, TL_CALL_RETURN, 0);
	connect_spi();
	n = tl_job_fail_list(&call, &list, &failure);
	SPI_finish();
	PG_RETURN_INT64(n);
}

/*
 * release_jobs(job_table regclass, sid, ids) returns bigint
 */
Datum
tokenlock_release_jobs(PG_FUNCTION_ARGS)
{
	TlJobCall	call;
	TlJobList	list;
	Oid			relation;
	text	   *sid;
	int64		n;

	tl_job_attach();
	relation = get_table(fcinfo, 0);
	sid = tl_arg_name(fcinfo, 1, "sid");
	get_list(fcinfo, 2, &list);
	tl_job_begin(&call, relation, sid, TL_CALL_RETURN, 0);
	connect_spi();
	n = tl_job_release_list(&call, &list);
	SPI_finish();
	PG_RETURN_INT64(n);
}

/*
 * release_jobs(job_table regclass, sid) returns bigint
 */
Datum
tokenlock_release_all_jobs(PG_FUNCTION_ARGS)
{
	TlJobCall	call;
	Oid			relation;
	text	   *sid;
	int64		n;

	tl_job_attach();
	relation = get_table(fcinfo, 0);
	sid = tl_arg_name(fcinfo, 1, "sid");
	tl_job_begin(&call, relation, sid, TL_CALL_RETURN, 0);
	connect_spi();
	n = tl_job_release_all(&call, false);
	SPI_finish();
	PG_RETURN_INT64(n);
}

/*
 * renew_jobs(job_table regclass, sid, ttl) returns boolean
 */
Datum
tokenlock_renew_jobs(PG_FUNCTION_ARGS)
{
	TlJobCall	call;
	Oid			relation;
	text	   *sid;
	TlTime		ttl;

	tl_job_attach();
	relation = get_table(fcinfo, 0);
	sid = tl_arg_name(fcinfo, 1, "sid");
	ttl = tl_arg_ttl(fcinfo, 2);
	tl_job_begin(&call, relation, sid, TL_CALL_RENEW, ttl);
	PG_RETURN_BOOL(!call.state.lapsed);
}

/*
 * CALL wait_jobs(job_table regclass, wait interval, INOUT ready boolean)
 *
 * Waits in a transaction that has no snapshot (procedure.c), nor a lock on the
 * table.
 */
Datum
tokenlock_wait_jobs(PG_FUNCTION_ARGS)
{
	Oid			relation;
	TlTime		wait;
	TlTime		deadline;
	bool		last;
	bool		ready;
	TupleDesc	tupdesc;
	Datum		values[1];
	bool		nulls[1] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	tupdesc = BlessTupleDesc(tupdesc);

	tl_job_attach();
	relation = get_table(fcinfo, 0);
	wait = tl_arg_wait(fcinfo, 1);
	tl_procedure_check(fcinfo, "wait_jobs", "claim_jobs");

	deadline = tl_time_add(tl_now(), wait);
	last = wait == 0;
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	tl_job_wait_join(tl_job_table(relation));

	/* each look has a snapshot of its own, at any isolation level */
	SPI_commit();
	while (!(ready = look_for_jobs(relation, last)) && !last)
	{
		SPI_commit();
		last = tl_job_wait_sleep(deadline);
	}
	SPI_finish();

	values[0] = BoolGetDatum(ready);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}

static bool
look_for_jobs(Oid relation, bool last)
{
	TimestampTz started = GetCurrentTimestamp();
	TlJobTableInfo *info;
	bool		ready;

	PushActiveSnapshot(GetTransactionSnapshot());
	info = tl_job_table(relation);
	connect_spi();
	ready = tl_job_ready(info);
	end_look(info, started, ready, false, last || ready);
	SPI_finish();
	PopActiveSnapshot();
	return ready;
}

/*
 * Arguments and results
 */

/* The row type that the first argument has, and the table it belongs to. */
static Oid
get_row_type(FunctionCallInfo fcinfo, Oid *relation)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);

	if (!OidIsValid(type))
		elog(ERROR, "could not determine the type of the job argument");
	type = getBaseType(type);
	*relation = get_typ_typrelid(type);
	if (!OidIsValid(*relation))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("job must be of the row type of a table, not of type %s",
						format_type_be(type)),
				 errhint("Write SELECT * FROM claim_jobs(NULL::job_table, ...).")));
	return type;
}

/*
 * Can rows as they are now be read as those that the query was told of, before
 * the table was locked?  Columns that came since are at the end, and those
 * that were dropped are null.
 */
static bool
rows_fit(TupleDesc expected, TupleDesc now)
{
	if (expected == NULL || expected->natts > now->natts)
		return false;
	for (int i = 0; i < expected->natts; i++)
	{
		Form_pg_attribute before = TupleDescAttr(expected, i);
		Form_pg_attribute after = TupleDescAttr(now, i);

		if (!after->attisdropped && (before->attisdropped ||
									 before->atttypid != after->atttypid))
			return false;
	}
	return true;
}

/*
 * The rows are all made before the first is returned: a caller that stops
 * half way has claimed them nevertheless.  The table is locked by now, so its
 * row type stays as it is; when it is another one than the query expects, the
 * executor says so.
 */
static Tuplestorestate *
begin_result(FunctionCallInfo fcinfo, Oid row_type)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext oldcontext;
	TupleDesc	desc;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	if (!(rsinfo->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("materialize mode required, but it is not allowed in this context")));

	oldcontext = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	desc = lookup_rowtype_tupdesc_copy(row_type, -1);
	if (rows_fit(rsinfo->expectedDesc, desc))
	{
		desc = CreateTupleDescCopy(rsinfo->expectedDesc);
		desc->tdtypeid = row_type;
		desc->tdtypmod = -1;
	}
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setDesc = desc;
	rsinfo->setResult =
		tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0,
							  false, work_mem);
	MemoryContextSwitchTo(oldcontext);
	return rsinfo->setResult;
}

static Oid
get_table(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		tl_error_null("job_table");
	return PG_GETARG_OID(n);
}

static int64
get_batch(FunctionCallInfo fcinfo, int n)
{
	int64		batch;

	if (PG_ARGISNULL(n))
		tl_error_null("batch");
	batch = PG_GETARG_INT64(n);
	if (batch < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch must not be negative"),
				 errhint("Give the largest number of jobs to hand out, or 0 for none.")));
	return Min(batch, INT_MAX);
}

static void
get_list(FunctionCallInfo fcinfo, int n, TlJobList *list)
{
	if (PG_ARGISNULL(n))
		tl_error_null("ids");
	tl_job_list(list, PG_GETARG_ARRAYTYPE_P(n),
				get_fn_expr_argtype(fcinfo->flinfo, n));
}

static void
connect_spi(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}
