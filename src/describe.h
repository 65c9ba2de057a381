/*-------------------------------------------------------------------------
 *
 * describe.h
 *	  Telling people about tokens, as far as they may know.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_DESCRIBE_H
#define TOKENLOCK_DESCRIBE_H

#include "token.h"

/* What stands for a name that the caller may not see, as in pg_stat_activity. */
#define TL_MASKED	"<insufficient privilege>"

/* May the current role see everything? */
extern bool tl_may_see_all(void);

/* May the current role see names, owners and processes of that role? */
extern bool tl_may_see(Oid role);

/* The name in a key, terminated. */
extern char *tl_key_name(const TlKey *key);

/*
 * "Token "k" is held by ..." as a sentence of its own, or NULL when nobody
 * holds it.
 */
extern char *tl_describe_holder(const TlRequest *request);

/* A line about the wait, and then the context that there is. */
extern char *tl_describe_wait(const TlRequest *request, const char *holder,
							  const char *context);

#endif							/* TOKENLOCK_DESCRIBE_H */
