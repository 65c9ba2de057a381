/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Checking the arguments of the SQL functions.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "args.h"
#include "clock.h"
#include "compat.h"
#include "utils/builtins.h"

void
tl_error_name(Size len, const char *what)
{
	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what),
				 errhint("Give a text of 1 to %d bytes.", TL_NAME_MAX)));
	ereport(ERROR,
			(errcode(ERRCODE_NAME_TOO_LONG),
			 errmsg("%s is too long", what),
			 errdetail("It has %zu bytes; the limit is %d bytes.",
					   len, TL_NAME_MAX),
			 errhint("Shorten it, or use a hash of it such as md5().")));
	pg_unreachable();
}

TlTime
tl_arg_ttl(FunctionCallInfo fcinfo, int n)
{
	TlTime		ttl;

	if (PG_ARGISNULL(n))
		return 0;
	ttl = tl_interval_to_time(PG_GETARG_INTERVAL_P(n));
	if (ttl <= 0)
		tl_error_ttl();
	return ttl;
}

void
tl_error_ttl(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("ttl must be longer than zero"),
			 errhint("Give an interval such as '30 s', or NULL for the default.")));
	pg_unreachable();
}

TlTime
tl_arg_wait(FunctionCallInfo fcinfo, int n)
{
	TlTime		wait;

	if (PG_ARGISNULL(n))
		return TL_NEVER;
	wait = tl_interval_to_time(PG_GETARG_INTERVAL_P(n));
	if (wait < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wait must not be negative"),
				 errhint("Give '0' to be answered at once, or NULL to wait as long as it takes.")));
	return wait;
}

void
tl_error_null(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", what),
			 errhint("Check that the caller sets this argument.")));
	pg_unreachable();
}
