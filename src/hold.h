/*-------------------------------------------------------------------------
 *
 * hold.h
 *	  What this session must give back, and when.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_HOLD_H
#define TOKENLOCK_HOLD_H

#include "token.h"

/* Prepare this backend; once. */
extern void tl_hold_attach(void);

/*
 * Enter a request of the session itself before it is made.  True when there
 * is an entry already: of a grant that is being asked for again, or that has
 * lapsed.
 */
extern bool tl_hold_enter(const TlRequest *request);

/* Complete its entry when it is answered; "again" is what the other said. */
extern void tl_hold_answered(const TlRequest *request, TlAnswer answer,
							 bool again);

/* A grant was renewed: set its scope to the session; drop its hold lock. */
extern void tl_hold_restarted(const TlKey *key, bool longer,
							  bool lock_dropped);

/*
 * pg_advisory_unlock_all() takes away all hold locks at once.  The tokens are
 * held nevertheless, but the deadlock detector does not see it any more, so
 * take new ones.
 */
extern void tl_hold_retake_locks(void);

/*
 * Forget a grant that has just been ended here, if it was the session's.
 * "unseen": nobody stood in line then.
 */
extern void tl_hold_put(const TlKey *key, bool unseen);

/* Give back all tokens of this session; returns how many they were. */
extern int64 tl_hold_put_all(void);

/* Does the transaction hold or guard a token, so that it may not be ended? */
extern bool tl_hold_in_use(void);

/* The session's end for the purposes of DISCARD ALL. */
extern void tl_hold_discard(void);

#endif							/* TOKENLOCK_HOLD_H */
