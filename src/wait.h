/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  The gate: waiting in line for a token.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_WAIT_H
#define TOKENLOCK_WAIT_H

#include "token.h"

/*
 * Grant the request now, if it can be.  Otherwise, if it is to keep a place
 * in line, note that: the answer is "queued" then.  with_hold: a new grant is
 * to keep a hold lock, which is taken at session level; its key comes back in
 * request->grant.  May raise errors; nothing is granted then.
 */
extern TlAnswer tl_wait_attempt(TlRequest *request, bool with_hold);

/*
 * Wait in line until the request is granted or its wait is over, which is the
 * answer "busy" or "queued".  Raises PostgreSQL's own errors of a lock wait, naming token
 * and holder; nothing is granted then.
 */
extern TlAnswer tl_wait_in_line(TlRequest *request, bool with_hold);

/* Leave the line; for the exit callback of a backend that dies in it. */
extern void tl_wait_abandon(void);

/* Clean up after an error in tl_wait_attempt; at each (sub)transaction's abort. */
extern void tl_wait_abort(void);

#endif							/* TOKENLOCK_WAIT_H */
