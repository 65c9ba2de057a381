/*-------------------------------------------------------------------------
 *
 * sqlfuncs.c
 *	  SQL entry points of the token functions: arguments in, answers out.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "args.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "compat.h"
#include "describe.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "guard.h"
#include "hold.h"
#include "miscadmin.h"
#include "procedure.h"
#include "recover.h"
#include "session.h"
#include "several.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"

/* How long a place may be kept. */
#define TL_LONGEST_PLACE	((TlTime) 3600 * USECS_PER_SEC)

PG_FUNCTION_INFO_V1(tokenlock_token_get);
PG_FUNCTION_INFO_V1(tokenlock_token_request);
PG_FUNCTION_INFO_V1(tokenlock_token_put);
PG_FUNCTION_INFO_V1(tokenlock_token_put_all);
PG_FUNCTION_INFO_V1(tokenlock_token_renew);
PG_FUNCTION_INFO_V1(tokenlock_token_fence);
PG_FUNCTION_INFO_V1(tokenlock_token_guard);
PG_FUNCTION_INFO_V1(tokenlock_token_get_all);
PG_FUNCTION_INFO_V1(tokenlock_token_acquire);
PG_FUNCTION_INFO_V1(tokenlock_token_break);

static TlAnswer request_token(FunctionCallInfo fcinfo, TlRequest *request);
static void set_grant(Datum *values, bool *nulls, const TlRequest *request,
					  TlAnswer answer);
static const char *role_name(Oid role);
static void get_key(FunctionCallInfo fcinfo, int n, TlKey *key);
static void get_owner(FunctionCallInfo fcinfo, int n, TlOwner *owner);
static TlKey *get_keys(FunctionCallInfo fcinfo, int arg, int *n);
static void get_sharing(FunctionCallInfo fcinfo, int arg, TlRequest *request);
static TlTime get_keep_place(FunctionCallInfo fcinfo, int arg, bool named);
static void check_session_tokens(TlScope scope);
static uint64 get_fence(FunctionCallInfo fcinfo, int n);
static TlScope get_scope(FunctionCallInfo fcinfo, int n, bool named);

/*
 * token_get(name, wait, ttl, owner, capacity, shared, scope, keep_place)
 * returns boolean
 */
Datum
tokenlock_token_get(PG_FUNCTION_ARGS)
{
	TlRequest	request;

	PG_RETURN_BOOL(request_token(fcinfo, &request) >= TL_ANSWER_NEW);
}

/*
 * token_request(the same)
 * returns (granted boolean, fence bigint, expires_at timestamptz, answer text,
 * place bigint)
 */
Datum
tokenlock_token_request(PG_FUNCTION_ARGS)
{
	static const char *const answers[] = {
		[TL_ANSWER_BUSY] = "busy",
		[TL_ANSWER_QUEUED] = "queued",
		[TL_ANSWER_NEW] = "new",
		[TL_ANSWER_AGAIN] = "again",
	};
	TlRequest	request;
	TlAnswer	answer;
	TupleDesc	tupdesc;
	Datum		values[5];
	bool		nulls[5] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	answer = request_token(fcinfo, &request);
	set_grant(values, nulls, &request, answer);
	values[3] = CStringGetTextDatum(answer < TL_ANSWER_NEW &&
									!tl_recover_may_grant(tl_now()) ?
									"grace" : answers[answer]);
	nulls[4] = answer != TL_ANSWER_QUEUED;
	values[4] = Int64GetDatum(request.place);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}

static TlAnswer
request_token(FunctionCallInfo fcinfo, TlRequest *request)
{
	tl_session_attach_primary();
	get_key(fcinfo, 0, &request->key);
	request->wait = tl_arg_wait(fcinfo, 1);
	request->ttl = tl_arg_ttl(fcinfo, 2);
	get_owner(fcinfo, 3, &request->owner);
	get_sharing(fcinfo, 4, request);
	request->scope = get_scope(fcinfo, 6, request->owner.named);
	request->keep_place = get_keep_place(fcinfo, 7, request->owner.named);
	request->untimed = request->goes_on = request->made_again = false;
	return tl_session_get(request);
}

/* The first columns of an answer: granted, fence, expires_at. */
static void
set_grant(Datum *values, bool *nulls, const TlRequest *request,
		  TlAnswer answer)
{
	bool		granted = answer >= TL_ANSWER_NEW;

	values[0] = BoolGetDatum(granted);
	nulls[1] = !granted;
	values[1] = Int64GetDatum((int64) request->grant.fence);
	nulls[2] = !granted || request->grant.expires == TL_NEVER;
	if (!nulls[2])
		values[2] = TimestampTzGetDatum(tl_time_to_timestamptz(request->grant.expires));
}

/*
 * token_put(name, owner, fence) returns boolean
 */
Datum
tokenlock_token_put(PG_FUNCTION_ARGS)
{
	TlKey		key;
	TlOwner		owner;

	tl_session_attach_primary();
	get_key(fcinfo, 0, &key);
	get_owner(fcinfo, 1, &owner);
	PG_RETURN_BOOL(tl_session_put(&key, &owner, get_fence(fcinfo, 2)));
}

/*
 * token_put_all(names, owner) returns bigint
 */
Datum
tokenlock_token_put_all(PG_FUNCTION_ARGS)
{
	TlOwner		owner;
	TlKey	   *keys;
	int			n;
	int64		put = 0;

	tl_session_attach_primary();
	get_owner(fcinfo, 1, &owner);
	if (PG_ARGISNULL(0))
		PG_RETURN_INT64(owner.named ? tl_session_put_all_of(&owner) :
						tl_hold_put_all());

	keys = get_keys(fcinfo, 0, &n);
	for (int i = 0; i < n; i++)
		tl_session_check_put(&keys[i], &owner);
	for (int i = 0; i < n; i++)
		if (tl_session_put(&keys[i], &owner, 0))
			put++;
	PG_RETURN_INT64(put);
}

/*
 * token_renew(name, ttl, owner, fence) returns boolean
 */
Datum
tokenlock_token_renew(PG_FUNCTION_ARGS)
{
	TlKey		key;
	TlOwner		owner;
	TlTime		ttl;

	tl_session_attach_primary();
	get_key(fcinfo, 0, &key);
	ttl = tl_arg_ttl(fcinfo, 1);
	get_owner(fcinfo, 2, &owner);
	PG_RETURN_BOOL(tl_session_renew(&key, &owner, get_fence(fcinfo, 3), ttl,
									TL_SCOPE_OWNER));
}

/*
 * token_fence(name, owner) returns bigint
 */
Datum
tokenlock_token_fence(PG_FUNCTION_ARGS)
{
	TlKey		key;
	TlOwner		owner;
	uint64		fence;

	tl_session_attach_primary();
	get_key(fcinfo, 0, &key);
	get_owner(fcinfo, 1, &owner);
	fence = tl_session_fence(&key, &owner);
	if (fence == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64((int64) fence);
}

/*
 * token_guard(name, owner, fence) returns bigint
 */
Datum
tokenlock_token_guard(PG_FUNCTION_ARGS)
{
	TlKey		key;
	TlOwner		owner;

	tl_session_attach_primary();
	get_key(fcinfo, 0, &key);
	get_owner(fcinfo, 1, &owner);
	PG_RETURN_INT64((int64) tl_guard_add(&key, &owner, get_fence(fcinfo, 2)));
}

/*
 * token_get_all(names, wait, ttl, owner, scope) returns boolean
 */
Datum
tokenlock_token_get_all(PG_FUNCTION_ARGS)
{
	TlRequest	template = {0};
	TlKey	   *keys;
	int			n;

	tl_session_attach_primary();
	if (PG_ARGISNULL(0))
		tl_error_null("names");
	keys = get_keys(fcinfo, 0, &n);
	template.wait = tl_arg_wait(fcinfo, 1);
	template.ttl = tl_arg_ttl(fcinfo, 2);
	get_owner(fcinfo, 3, &template.owner);
	template.scope = get_scope(fcinfo, 4, template.owner.named);
	template.capacity = 1;
	PG_RETURN_BOOL(tl_several_get(keys, n, &template));
}

/*
 * CALL token_acquire(name, wait, ttl, owner, capacity, shared,
 * INOUT granted boolean, INOUT fence bigint, INOUT expires_at timestamptz)
 *
 * Waits in a transaction that has no snapshot (procedure.c).
 */
Datum
tokenlock_token_acquire(PG_FUNCTION_ARGS)
{
	TlRequest	request = {0};
	TlTime		deadline;
	TlAnswer	answer;
	TupleDesc	tupdesc;
	Datum		values[3];
	bool		nulls[3] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	tupdesc = BlessTupleDesc(tupdesc);

	tl_session_attach_primary();
	get_key(fcinfo, 0, &request.key);
	request.wait = tl_arg_wait(fcinfo, 1);
	request.ttl = tl_arg_ttl(fcinfo, 2);
	get_owner(fcinfo, 3, &request.owner);
	get_sharing(fcinfo, 4, &request);
	request.scope = request.owner.named ? TL_SCOPE_OWNER : TL_SCOPE_SESSION;
	check_session_tokens(request.scope);

	tl_procedure_check(fcinfo, "token_acquire", "token_get");

	deadline = tl_time_add(tl_now(), request.wait);
	request.goes_on = request.wait != 0;
	request.wait = 0;
	answer = tl_session_get(&request);
	if (answer < TL_ANSWER_NEW && request.goes_on)
	{
		SPI_connect_ext(SPI_OPT_NONATOMIC);
		SPI_commit();
		request.wait = deadline == TL_NEVER ? TL_NEVER :
			Max(deadline - tl_now(), 1);
		request.goes_on = false;
		request.made_again = true;
		answer = tl_session_get(&request);
		SPI_finish();
	}

	set_grant(values, nulls, &request, answer);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}

/*
 * token_break(name, fence) returns boolean
 */
Datum
tokenlock_token_break(PG_FUNCTION_ARGS)
{
	TlKey		key;
	TlBroken	broken;
	uint64		fence;

	tl_session_attach_primary();
	get_key(fcinfo, 0, &key);
	fence = get_fence(fcinfo, 1);
	if (fence == 0)
		tl_error_null("fence");
	if (!superuser() &&
		!has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND) &&
		!tl_owns_database(MyDatabaseId, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to break a token"),
				 errhint("Only members of pg_signal_backend and the owner of the database may do that.")));

	broken.role = tl_session_holder_role(&key, fence);
	if (!OidIsValid(broken.role))
		PG_RETURN_BOOL(false);
	if (superuser_arg(broken.role) && !superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to break a token of a superuser"),
				 errhint("Only superusers may do that.")));

	if (!tl_session_break(&key, fence, &broken))
		PG_RETURN_BOOL(false);
	ereport(LOG,
			(errmsg("token \"%s\" was broken by role \"%s\"",
					tl_key_name(&key), GetUserNameFromId(GetUserId(), false)),
			 broken.pid != 0 ?
			 errdetail("It was held by process %d of role \"%s\" with fence " UINT64_FORMAT ".",
					   broken.pid, role_name(broken.role), fence) :
			 errdetail("It was held by owner \"%s\" of role \"%s\" with fence " UINT64_FORMAT ".",
					   pnstrdup(broken.owner, broken.owner_len),
					   role_name(broken.role), fence)));
	PG_RETURN_BOOL(true);
}

/* The name of a role, or its number when it was dropped. */
static const char *
role_name(Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	return name ? name : psprintf("%u", role);
}

/*
 * Arguments
 */

static void
get_key(FunctionCallInfo fcinfo, int n, TlKey *key)
{
	text	   *name = tl_arg_name(fcinfo, n, "name");

	tl_key_init(key, InvalidOid, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
}

static void
get_owner(FunctionCallInfo fcinfo, int n, TlOwner *owner)
{
	tl_session_owner(owner);
	if (!PG_ARGISNULL(n))
	{
		text	   *name = tl_arg_name(fcinfo, n, "owner");

		owner->named = true;
		owner->len = VARSIZE_ANY_EXHDR(name);
		memcpy(owner->name, VARDATA_ANY(name), owner->len);
	}
}

/* A list of names, all checked. */
static TlKey *
get_keys(FunctionCallInfo fcinfo, int arg, int *n)
{
	Datum	   *names;
	bool	   *nulls;
	TlKey	   *keys;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(arg), TEXTOID, -1, false,
					  TYPALIGN_INT, &names, &nulls, n);
	keys = palloc(Max(*n, 1) * sizeof(TlKey));
	for (int i = 0; i < *n; i++)
	{
		text	   *name;

		if (nulls[i])
			tl_error_null("name");
		name = DatumGetTextPP(names[i]);
		tl_check_name(name, "name");
		tl_key_init(&keys[i], InvalidOid, VARDATA_ANY(name),
					VARSIZE_ANY_EXHDR(name));
	}
	return keys;
}

/* The arguments capacity and shared, which stand together. */
static void
get_sharing(FunctionCallInfo fcinfo, int arg, TlRequest *request)
{
	int64		capacity;

	if (PG_ARGISNULL(arg))
		tl_error_null("capacity");
	if (PG_ARGISNULL(arg + 1))
		tl_error_null("shared");
	capacity = PG_GETARG_INT64(arg);
	request->shared = PG_GETARG_BOOL(arg + 1);
	if (capacity < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("capacity must be at least 1"),
				 errhint("Give the number of owners that may hold the token at a time.")));
	if (request->shared && capacity != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a shared request cannot have a capacity"),
				 errhint("Leave out either \"shared\" or \"capacity\".")));
	request->capacity = (int32) Min(capacity, PG_INT32_MAX);
}

static TlTime
get_keep_place(FunctionCallInfo fcinfo, int arg, bool named)
{
	TlTime		keep;

	if (PG_ARGISNULL(arg))
		return 0;
	keep = tl_interval_to_time(PG_GETARG_INTERVAL_P(arg));
	if (keep <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keep_place must be longer than zero"),
				 errhint("Give an interval such as '5 s' in which the owner asks again.")));
	/* nobody can take a place away, so it must not stand in the way for long */
	if (keep > TL_LONGEST_PLACE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keep_place must not be longer than one hour"),
				 errhint("Give an interval such as '5 s' in which the owner asks again.")));
	if (!named)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keep_place needs an owner"),
				 errhint("Name an owner: a place in line outlives the session's statement.")));
	return keep;
}

static void
check_session_tokens(TlScope scope)
{
	if (scope == TL_SCOPE_SESSION && !tl_session_tokens)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session tokens are switched off here"),
				 errdetail("The setting tokenlock.session_tokens is off."),
				 errhint("Name an owner, or ask with scope \"transaction\".")));
}

/* The fence that the caller means, or 0 for any. */
static uint64
get_fence(FunctionCallInfo fcinfo, int n)
{
	int64		fence;

	if (PG_ARGISNULL(n))
		return 0;
	fence = PG_GETARG_INT64(n);
	if (fence <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fence must be greater than zero"),
				 errhint("Use the number that token_request or token_fence has returned.")));
	return (uint64) fence;
}

/* Is a text the word of a literal? */
#define text_is(value, word) \
	(VARSIZE_ANY_EXHDR(value) == sizeof(word) - 1 && \
	 memcmp(VARDATA_ANY(value), word, sizeof(word) - 1) == 0)

static TlScope
get_scope(FunctionCallInfo fcinfo, int n, bool named)
{
	text	   *scope;

	if (PG_ARGISNULL(n))
		tl_error_null("scope");
	scope = tl_arg_text(fcinfo, n);
	if (text_is(scope, "session"))
	{
		if (named)
			return TL_SCOPE_OWNER;
		check_session_tokens(TL_SCOPE_SESSION);
		return TL_SCOPE_SESSION;
	}
	if (!text_is(scope, "transaction"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized scope \"%s\"", text_to_cstring(scope)),
				 errhint("Valid scopes are \"session\" and \"transaction\".")));
	if (named)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a named owner cannot have scope \"transaction\""),
				 errdetail("A grant of a named owner is a lease, which lasts until it is put or its ttl is over."),
				 errhint("Leave out either the owner or the scope.")));
	return TL_SCOPE_TRANSACTION;
}
