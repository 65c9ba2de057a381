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
#include "args.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "session.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(tokenlock_token_get);
PG_FUNCTION_INFO_V1(tokenlock_token_request);
PG_FUNCTION_INFO_V1(tokenlock_token_put);
PG_FUNCTION_INFO_V1(tokenlock_token_put_all);
PG_FUNCTION_INFO_V1(tokenlock_token_renew);
PG_FUNCTION_INFO_V1(tokenlock_token_fence);

static TlAnswer request_token(FunctionCallInfo fcinfo, TlRequest *request);
static void get_key(FunctionCallInfo fcinfo, int n, TlKey *key);
static void get_owner(FunctionCallInfo fcinfo, int n, TlOwner *owner);
static uint64 get_fence(FunctionCallInfo fcinfo, int n);
static TlScope get_scope(FunctionCallInfo fcinfo, int n, bool named);

/*
 * token_get(name, wait, ttl, owner, scope) returns boolean
 */
Datum
tokenlock_token_get(PG_FUNCTION_ARGS)
{
	TlRequest	request;

	PG_RETURN_BOOL(request_token(fcinfo, &request) != TL_ANSWER_BUSY);
}

/*
 * token_request(name, wait, ttl, owner, scope)
 * returns (granted boolean, fence bigint, expires_at timestamptz, answer text)
 */
Datum
tokenlock_token_request(PG_FUNCTION_ARGS)
{
	static const char *const answers[] = {
		[TL_ANSWER_BUSY] = "busy",
		[TL_ANSWER_NEW] = "new",
		[TL_ANSWER_AGAIN] = "again",
	};
	TlRequest	request;
	TlAnswer	answer;
	TupleDesc	tupdesc;
	Datum		values[4];
	bool		nulls[4] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	answer = request_token(fcinfo, &request);
	nulls[1] = answer == TL_ANSWER_BUSY;
	nulls[2] = answer == TL_ANSWER_BUSY || request.grant.expires == TL_NEVER;
	values[0] = BoolGetDatum(answer != TL_ANSWER_BUSY);
	values[1] = Int64GetDatum((int64) request.grant.fence);
	if (!nulls[2])
		values[2] = TimestampTzGetDatum(tl_time_to_timestamptz(request.grant.expires));
	values[3] = CStringGetTextDatum(answers[answer]);
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
	request->scope = get_scope(fcinfo, 4, request->owner.named);
	return tl_session_get(request);
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
	Datum	   *names;
	bool	   *nulls;
	int			n;
	int64		put = 0;

	tl_session_attach_primary();
	get_owner(fcinfo, 1, &owner);
	if (PG_ARGISNULL(0))
		PG_RETURN_INT64(owner.named ? tl_session_put_all_of(&owner) :
						tl_session_put_all());

	/* look at all names before the first is put */
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false,
					  TYPALIGN_INT, &names, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			tl_error_null("name");
		tl_check_name(DatumGetTextPP(names[i]), "name");
	}
	for (int i = 0; i < n; i++)
	{
		text	   *name = DatumGetTextPP(names[i]);
		TlKey		key;

		tl_key_init(&key, InvalidOid, VARDATA_ANY(name),
					VARSIZE_ANY_EXHDR(name));
		if (tl_session_put(&key, &owner, 0))
			put++;
	}
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
	PG_RETURN_BOOL(tl_session_renew(&key, &owner, get_fence(fcinfo, 3), ttl));
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

static bool
text_is(const text *value, const char *word)
{
	size_t		len = strlen(word);

	return VARSIZE_ANY_EXHDR(value) == len &&
		memcmp(VARDATA_ANY(value), word, len) == 0;
}

static TlScope
get_scope(FunctionCallInfo fcinfo, int n, bool named)
{
	text	   *scope;

	if (PG_ARGISNULL(n))
		tl_error_null("scope");
	scope = PG_GETARG_TEXT_PP(n);
	if (text_is(scope, "session"))
	{
		if (!named && !tl_session_tokens)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("session tokens are switched off here"),
					 errdetail("The setting tokenlock.session_tokens is off."),
					 errhint("Name an owner, or ask with scope \"transaction\".")));
		return named ? TL_SCOPE_OWNER : TL_SCOPE_SESSION;
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
