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
extern text *tl_arg_name(FunctionCallInfo fcinfo, int n, const char *what);

/* The same for one that was already fetched, in a list for instance. */
extern void tl_check_name(text *name, const char *what);

/* A ttl: longer than nothing, or 0 when it is NULL. */
extern TlTime tl_arg_ttl(FunctionCallInfo fcinfo, int n);

/* The error for one that is not longer than nothing. */
extern tl_noreturn void tl_error_ttl(void);

/* A wait: 0 or longer, or TL_NEVER when it is NULL. */
extern TlTime tl_arg_wait(FunctionCallInfo fcinfo, int n);

/* The error for a value that must not be NULL. */
extern tl_noreturn void tl_error_null(const char *what);

#endif							/* TOKENLOCK_ARGS_H */
