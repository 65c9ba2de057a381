/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  Fence numbers: drawn in shared memory, reserved durably in blocks.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_FENCE_H
#define TOKENLOCK_FENCE_H

#include "tokenlock.h"

/*
 * Make sure that numbers can be drawn, reserving a block when none is left.
 * May read catalogs and write WAL; to be called without locks.
 */
extern void tl_fence_prepare(void);

/*
 * The next number of this database, larger than all before it, or 0 when
 * none is reserved: call tl_fence_prepare and try again.  May be called with
 * a token's lock held, and must be, for the numbers of one name to be in the
 * order of its grants.
 */
extern uint64 tl_fence_draw(void);

/*
 * Tells this server's history from others: a promotion begins a new timeline,
 * and an initdb (also that of pg_upgrade) has a system identifier of its own.
 * Not during recovery.
 */
extern int64 tl_fence_history(void);

#endif							/* TOKENLOCK_FENCE_H */
