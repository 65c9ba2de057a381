/*-------------------------------------------------------------------------
 *
 * guard.h
 *	  Transactions that commit only while their token is held.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_GUARD_H
#define TOKENLOCK_GUARD_H

#include "compat.h"
#include "token.h"

/*
 * Guard the transaction by the owner's grant (fence: 0, or the only one that
 * is meant), and return its fence.  Raises an error when it is not held.
 */
extern uint64 tl_guard_add(const TlKey *key, const TlOwner *owner,
						   uint64 fence);

/* Is the transaction guarded by the grant with this fence, or by any? */
extern bool tl_guard_has(uint64 fence);
extern bool tl_guard_any(void);

/* An upgrade has replaced the grant by another of its owner. */
extern void tl_guard_upgraded(uint64 from, uint64 to);

/* The error for a put of a grant that guards the transaction. */
tl_noreturn extern void tl_guard_error_put(const TlKey *key);

/*
 * For the callbacks of hold.c.  tl_guard_pin checks all guards and pins
 * their grants, or raises an error; tl_guard_end lets go of them.
 */
extern void tl_guard_pin(void);
extern void tl_guard_end(void);
extern void tl_guard_refuse_prepare(void);
extern void tl_guard_commit_sub(SubTransactionId subid,
								SubTransactionId parent);
extern void tl_guard_abort_sub(SubTransactionId subid);

#endif							/* TOKENLOCK_GUARD_H */
