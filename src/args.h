/*-------------------------------------------------------------------------
 *
 * args.h
 *	  Checking the arguments of the SQL functions.
 *
 * Each of these raises the error that a bad value deserves.  "what" is the
 * argument's name, for the message.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_ARGS_H
#define TOKENLOCK_ARGS_H

#include "compat.h"
#include "tokenlock.h"

#include "fmgr.h"

/* A name of 1 to TL_NAME_MAX bytes. */
static inline text *tl_arg_name(FunctionCallInfo fcinfo, int n,
								const char *what);

/* The same for one that was already fetched, in a list for instance. */
static inline void tl_check_name(text *name, const char *what);

/* A ttl: longer than nothing, or 0 when it is NULL. */
extern TlTime tl_arg_ttl(FunctionCallInfo fcinfo, int n);

/* The error for one that is not longer than nothing. */
tl_noreturn extern void tl_error_ttl(void);

/* A wait: 0 or longer, or TL_NEVER when it is NULL. */
extern TlTime tl_arg_wait(FunctionCallInfo fcinfo, int n);

/* The error for a value that must not be NULL. */
tl_noreturn extern void tl_error_null(const char *what);

/* The error for a name of another length. */
tl_noreturn extern void tl_error_name(Size len, const char *what);

/* PG_GETARG_TEXT_PP, without a call for what is as it should be already. */
static inline text *
tl_arg_text(FunctionCallInfo fcinfo, int n)
{
	struct varlena *value = (struct varlena *) PG_GETARG_POINTER(n);

	return VARATT_IS_COMPRESSED(value) || VARATT_IS_EXTERNAL(value) ?
		pg_detoast_datum_packed(value) : value;
}

static inline text *
tl_arg_name(FunctionCallInfo fcinfo, int n, const char *what)
{
	text	   *name;

	if (PG_ARGISNULL(n))
		tl_error_null(what);
	name = tl_arg_text(fcinfo, n);
	tl_check_name(name, what);
	return name;
}

static inline void
tl_check_name(text *name, const char *what)
{
	Size		len = VARSIZE_ANY_EXHDR(name);

	if (unlikely(len == 0 || len > TL_NAME_MAX))
		tl_error_name(len, what);
}

#endif							/* TOKENLOCK_ARGS_H */
