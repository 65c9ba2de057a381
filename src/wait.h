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

/* Take a hold lock with a new key for a grant that lost its own. */
extern uint64 tl_wait_take_hold(void);

/* Release the hold lock of that key, if this backend has it. */
extern void tl_wait_drop_hold(uint64 serial);

/*
 * Keep a hold lock for the next grant instead, when nobody who stands in line
 * can have seen its key; and release it if it was not used, at the end of the
 * transaction.
 */
extern void tl_wait_spare_hold(uint64 serial);
extern void tl_wait_drop_spare(void);

/* Does this backend have the hold lock of that key? */
extern bool tl_wait_has_hold(uint64 serial);

/*
 * Tell the head of the line that the grant whose hold lock it may be waiting
 * for is gone, though the lock is not.  The head was marked (kicked) under
 * the token's lock.
 */
extern void tl_wait_kick_head(const TlKey *key, int procno,
							  uint64 hold_serial);

/* Leave the line; for the exit callback of a backend that dies in it. */
extern void tl_wait_abandon(void);

/* Clean up after an error in tl_wait_attempt; at each (sub)transaction's abort. */
extern void tl_wait_abort(void);

#endif							/* TOKENLOCK_WAIT_H */
