/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  Transactions that commit only while their token is held.
 *
 * A guard is checked when it is asked for, and again as the last thing before
 * the commit.  The check compares the fence: an owner that lost the token and
 * got it again has another grant, and somebody may have committed in between.
 *
 * Between that check and the moment at which others see the commit, the lease
 * may run out (a synchronous standby may take its time).  So the check pins
 * the grant in the same critical section, and nobody that it excludes is
 * granted until the pin is gone.  It goes when the transaction has ended and
 * its work can be seen.  Two sessions of one owner may pin at the same time:
 * it is a count.
 *
 * The callbacks at the end of a transaction neither allocate nor raise errors.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "clock.h"
#include "describe.h"
#include "grant.h"
#include "guard.h"
#include "lib/ilist.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* A guard of the transaction, in TopTransactionContext. */
typedef struct TlGuard
{
	slist_node	node;
	TlKey		key;
	uint64		fence;
	SubTransactionId subid;
	bool		pinned;
} TlGuard;

static slist_head guards = SLIST_STATIC_INIT(guards);

static bool is_too_young(TlTime acquired);

uint64
tl_guard_add(const TlKey *key, const TlOwner *owner, uint64 fence)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder = NULL;
	TlTime		acquired = 0;
	TlGuard    *guard;

	if (token)
	{
		holder = tl_grant_of(token, owner, fence);
		if (!holder && fence != 0 && !owner->named)
			holder = tl_grant_of_role(token, owner->role, fence);
		if (holder)
		{
			fence = holder->fence;
			acquired = holder->acquired;
		}
		tl_token_unlock(token);
	}
	if (!holder)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("token \"%s\" is not held", tl_key_name(key)),
				 errdetail("This owner's grant was put, has lapsed, or never was."),
				 errhint("Take the token again, and do the work anew with the new fence.")));
	if (IsolationUsesXactSnapshot() && is_too_young(acquired))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("token \"%s\" was taken after the transaction began", tl_key_name(key)),
				 errdetail("The transaction's snapshot may be older than the work of the former holder."),
				 errhint("Take the token before the transaction begins.")));

	if (!tl_guard_has(fence))
	{
		guard = MemoryContextAlloc(TopTransactionContext, sizeof(TlGuard));
		guard->key = *key;
		guard->fence = fence;
		guard->subid = GetCurrentSubTransactionId();
		guard->pinned = false;
		slist_push_head(&guards, &guard->node);
	}
	return fence;
}

/*
 * Was the grant given after the transaction began?  Its beginning is known in
 * wall-clock time only; a clock stepped meanwhile makes this wrong.
 */
static bool
is_too_young(TlTime acquired)
{
	TimestampTz start = GetCurrentTransactionStartTimestamp();

	return acquired > tl_now() - (GetCurrentTimestamp() - start);
}

bool
tl_guard_has(uint64 fence)
{
	slist_iter	iter;

	slist_foreach(iter, &guards)
	{
		if (slist_container(TlGuard, node, iter.cur)->fence == fence)
			return true;
	}
	return false;
}

/*
 * The owner had the token all the time, so nobody that it excludes had it
 * meanwhile.  But those that it shared the token with may have committed, and
 * an old snapshot lacks that: there the guard fails.
 */
void
tl_guard_upgraded(uint64 from, uint64 to)
{
	slist_iter	iter;

	if (IsolationUsesXactSnapshot())
		return;
	slist_foreach(iter, &guards)
	{
		TlGuard    *guard = slist_container(TlGuard, node, iter.cur);

		if (guard->fence == from)
			guard->fence = to;
	}
}

bool
tl_guard_any(void)
{
	return !slist_is_empty(&guards);
}

void
tl_guard_error_put(const TlKey *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot put token \"%s\", which guards this transaction", tl_key_name(key)),
			 errhint("Put it after the transaction has ended.")));
	pg_unreachable();
}

void
tl_guard_pin(void)
{
	slist_iter	iter;

	slist_foreach(iter, &guards)
	{
		TlGuard    *guard = slist_container(TlGuard, node, iter.cur);
		TlToken    *token = tl_token_lock(&guard->key, false);

		if (token)
		{
			TlHolder   *holder = tl_grant_live(token, guard->fence);

			if (holder)
			{
				tl_grant_pin(holder);
				guard->pinned = true;
			}
			tl_token_unlock(token);
		}
		if (!guard->pinned)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("token \"%s\" was lost before the transaction could commit", tl_key_name(&guard->key)),
					 errdetail("The grant that guards the transaction was put or broken, or has lapsed."),
					 errhint("Take the token again, and repeat the transaction.")));
	}
}

void
tl_guard_end(void)
{
	slist_iter	iter;

	slist_foreach(iter, &guards)
	{
		TlGuard    *guard = slist_container(TlGuard, node, iter.cur);
		TlToken    *token;

		if (!guard->pinned)
			continue;
		token = tl_token_lock(&guard->key, false);
		if (token)
		{
			TlHolder   *holder = tl_grant_with(token, guard->fence);

			if (holder)
				tl_grant_unpin(token, holder);
			tl_token_unlock(token);
		}
	}
	/* the memory goes with the transaction */
	slist_init(&guards);
}

void
tl_guard_refuse_prepare(void)
{
	if (tl_guard_any())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that is guarded by a token"),
				 errhint("Commit it in one step, or leave out token_guard.")));
}

void
tl_guard_commit_sub(SubTransactionId subid, SubTransactionId parent)
{
	slist_iter	iter;

	slist_foreach(iter, &guards)
	{
		TlGuard    *guard = slist_container(TlGuard, node, iter.cur);

		if (guard->subid == subid)
			guard->subid = parent;
	}
}

void
tl_guard_abort_sub(SubTransactionId subid)
{
	slist_mutable_iter iter;

	slist_foreach_modify(iter, &guards)
	{
		TlGuard    *guard = slist_container(TlGuard, node, iter.cur);

		if (guard->subid == subid)
			slist_delete_current(&iter);
	}
}
