/*-------------------------------------------------------------------------
 *
 * gate.h
 *	  The locks of the gate: queue locks and hold locks (wait.c says what for).
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_GATE_H
#define TOKENLOCK_GATE_H

#include "shmem.h"

#include "storage/lock.h"

/*
 * The fourth field of our lock tags, beside the 1 and 2 of the advisory lock
 * functions; "objsubid" in pg_locks.
 */
#define TL_CLASS_QUEUE	29761
#define TL_CLASS_HOLD	29762

/* The tag of the lock with this key. */
extern void tl_gate_tag(LOCKTAG *tag, uint64 serial, uint16 class);

/* Take a hold lock with a new key for a grant that lost its own. */
extern uint64 tl_gate_take_hold(void);

/* Release the hold lock of that key, if this backend has it. */
extern void tl_gate_drop_hold(uint64 serial);

/*
 * Keep a hold lock for the next grant instead, when nobody who stands in line
 * can have seen its key; and release it if it was not used, at the end of the
 * transaction.
 */
extern void tl_gate_spare_hold(uint64 serial);
extern void tl_gate_drop_spare(void);

/* Does this backend have the hold lock of that key? */
extern bool tl_gate_has_hold(uint64 serial);

/*
 * Get a waiter out of the queue of one of the locks, in which it may be.  It
 * was marked (kicked) under the token's lock.
 */
extern void tl_gate_kick(const TlKey *key, int procno, uint64 serial,
						 uint16 class);

#endif							/* TOKENLOCK_GATE_H */
