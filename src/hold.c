/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  What this session must give back, and when.
 *
 * A grant of the session itself (session or transaction scope) ends with the
 * transaction, savepoint or session, so this backend remembers it.  The
 * memory is only a list of what to clean up: whether the token is still held
 * is said by the entry in shared memory, where a lease may have lapsed, so
 * each release there names the fence of the very grant.  Leases of named
 * owners outlive the session, and nothing is remembered of them.
 *
 * Transaction scope is kept by a session-level hold lock, too, which our
 * callbacks release.  Lengthening a hold from transaction to session is then
 * a matter of this list alone.
 *
 * The callbacks at the end of a transaction neither allocate nor read
 * catalogs: an error after the commit record would be a PANIC.
 *
 * Locks: one token's at a time (token.c).
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "gate.h"
#include "grant.h"
#include "guard.h"
#include "hold.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "several.h"
#include "stats.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "wait.h"

/*
 * What this session must give back.  An entry is made before the request,
 * with fence 0, so that nothing needs to be allocated once it is granted.
 */
typedef struct TlHold
{
	TlKey		key;			/* hash key, must be first */
	uint64		fence;			/* 0: request under way */
	uint64		hold_serial;	/* key of the hold lock; 0: none */
	SubTransactionId subid;		/* scope; InvalidSubTransactionId: session */
	SubTransactionId made_in;	/* where the request was made */
	TimestampTz granted_in;		/* start of the statement that was granted it,
								 * or its session scope */
	dlist_node	node;			/* in transaction_holds or session_holds */
} TlHold;

static HTAB *holds = NULL;
static dlist_head session_holds = DLIST_STATIC_INIT(session_holds);
static dlist_head transaction_holds = DLIST_STATIC_INIT(transaction_holds);

/* The entry of a request that is under way. */
static TlHold *pending = NULL;

/* How many entries have a hold lock. */
static int	hold_locks = 0;

static void on_xact(XactEvent event, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId mySubid,
					   SubTransactionId parentSubid, void *arg);
static void on_session_exit(int code, Datum arg);

void
tl_hold_attach(void)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(TlKey);
	ctl.entrysize = sizeof(TlHold);
	ctl.hash = tl_key_hash;
	ctl.match = tl_key_compare;
	ctl.hcxt = TopMemoryContext;
	holds = hash_create("tokenlock holds", 16, &ctl,
						HASH_ELEM | HASH_FUNCTION | HASH_COMPARE |
						HASH_CONTEXT);

	/*
	 * In before_shmem_exit, because later the area could not be used any
	 * more.  This runs before the callback that aborts an open transaction.
	 */
	before_shmem_exit(on_session_exit, 0);
	RegisterXactCallback(on_xact, NULL);
	RegisterSubXactCallback(on_subxact, NULL);
}

bool
tl_hold_enter(const TlRequest *request)
{
	bool		found;
	TlHold	   *hold = hash_search(holds, &request->key, HASH_ENTER, &found);

	if (!found)
	{
		hold->fence = 0;
		hold->hold_serial = 0;
		hold->subid = InvalidSubTransactionId;
		hold->granted_in = 0;
		dlist_push_tail(&session_holds, &hold->node);
	}
	hold->made_in = GetCurrentSubTransactionId();
	pending = hold;
	return found;
}

/* The grant of an entry, if it is there yet.  Caller must lock the token. */
static TlHolder *
grant_of(TlToken *token, const TlHold *hold)
{
	TlOwner		owner;

	owner.named = false;
	owner.procno = tl_my_procno();
	owner.pid = MyProcPid;
	return tl_grant_of(token, &owner, hold->fence);
}

static bool
is_granted(const TlHold *hold)
{
	TlToken    *token = tl_token_lock(&hold->key, false);
	bool		granted;

	if (!token)
		return false;
	granted = grant_of(token, hold) != NULL;
	tl_token_unlock(token);
	return granted;
}

static void
set_hold_lock(TlHold *hold, uint64 serial)
{
	hold_locks += (serial != 0) - (hold->hold_serial != 0);
	hold->hold_serial = serial;
}

/* Release the hold lock of an entry, if it has one. */
static void
drop_hold_lock(TlHold *hold)
{
	tl_gate_drop_hold(hold->hold_serial);
	set_hold_lock(hold, 0);
}

/*
 * The same for a grant that has just been ended here.  "unseen": nobody stood
 * in line then, so nobody can know the lock's key.  (Who had been there and
 * left again has forgotten it, and asks for no lock any more.)
 */
static void
drop_ended_hold_lock(TlHold *hold, bool unseen)
{
	if (unseen && hold->hold_serial != 0)
		tl_gate_spare_hold(hold->hold_serial);
	else
		tl_gate_drop_hold(hold->hold_serial);
	set_hold_lock(hold, 0);
}

static void
forget_hold(TlHold *hold)
{
	set_hold_lock(hold, 0);
	dlist_delete(&hold->node);
	hash_search(holds, &hold->key, HASH_REMOVE, NULL);
}

/* Set whether the hold is the session's or that of a (sub)transaction. */
static void
set_scope(TlHold *hold, SubTransactionId subid)
{
	hold->subid = subid;
	hold->granted_in = GetCurrentStatementStartTimestamp();
	dlist_delete(&hold->node);
	dlist_push_tail(subid == InvalidSubTransactionId ?
					&session_holds : &transaction_holds, &hold->node);
}

/* Take a hold lock for an untimed grant that has none. */
static void
give_hold_lock(TlHold *hold)
{
	/* a new key each time: somebody may have got the old lock just now */
	uint64		serial = tl_gate_take_hold();
	TlToken    *token = tl_token_lock(&hold->key, false);
	TlHolder   *holder = NULL;

	if (token)
	{
		holder = grant_of(token, hold);
		if (holder)
			tl_grant_set_hold(token, holder, serial);
		tl_token_unlock(token);
	}
	set_hold_lock(hold, holder ? serial : 0);
	if (!holder)
		tl_gate_drop_hold(serial);
}

void
tl_hold_answered(const TlRequest *request, TlAnswer answer, bool again)
{
	const TlGrant *grant = &request->grant;
	TlHold	   *hold = pending;

	pending = NULL;
	switch (answer)
	{
		case TL_ANSWER_BUSY:
		case TL_ANSWER_QUEUED:
			/* the earlier grant may be a shared one that goes on, or over */
			if (again && is_granted(hold))
				break;
			drop_hold_lock(hold);
			forget_hold(hold);
			break;
		case TL_ANSWER_NEW:
			drop_hold_lock(hold);
			hold->fence = grant->fence;
			set_hold_lock(hold, grant->hold_serial);

			/*
			 * an upgrade of the session's hold is none that an error takes
			 * back
			 */
			if (request->scope == TL_SCOPE_SESSION &&
				(grant->upgraded_from == 0 ||
				 hold->subid != InvalidSubTransactionId))
				set_scope(hold, InvalidSubTransactionId);
			else if (grant->upgraded_from == 0)
				set_scope(hold, GetCurrentSubTransactionId());
			/* an upgrade, or a lease that it had and that lapsed just before */
			if (hold->hold_serial == 0 && grant->expires == TL_NEVER &&
				tl_grant_keeps_lock(request))
				give_hold_lock(hold);
			break;
		case TL_ANSWER_AGAIN:
			hold->fence = grant->fence;
			/* a grant that became timed keeps no lock any more */
			if (grant->dropped_serial != 0)
				drop_hold_lock(hold);
			if (request->scope == TL_SCOPE_SESSION &&
				hold->subid != InvalidSubTransactionId)
				set_scope(hold, InvalidSubTransactionId);
			break;
	}
}

void
tl_hold_retake_locks(void)
{
	HASH_SEQ_STATUS status;
	TlHold	   *hold;

	if (likely(hold_locks == 0))
		return;
	hash_seq_init(&status, holds);
	while ((hold = hash_seq_search(&status)) != NULL)
	{
		if (hold->hold_serial == 0)
			continue;
		if (tl_gate_has_hold(hold->hold_serial))
		{
			/* if one is there, all are */
			hash_seq_term(&status);
			return;
		}
		give_hold_lock(hold);
	}
}

void
tl_hold_restarted(const TlKey *key, bool longer, bool lock_dropped)
{
	TlHold	   *hold = hash_search(holds, key, HASH_FIND, NULL);

	if (hold && longer)
		set_scope(hold, InvalidSubTransactionId);
	if (hold && lock_dropped)
		drop_hold_lock(hold);
}

/*
 * Giving back
 */

void
tl_hold_put(const TlKey *key, bool unseen)
{
	TlHold	   *hold = hash_search(holds, key, HASH_FIND, NULL);

	if (!hold)
		return;
	drop_ended_hold_lock(hold, unseen);
	forget_hold(hold);
}

/*
 * Remove a grant from shared memory; false when it was not there any more.
 * *unseen: see drop_ended_hold_lock.
 */
static bool
remove_grant(const TlHold *hold, bool *unseen)
{
	TlToken    *token = tl_token_lock(&hold->key, false);
	TlHolder   *holder;

	*unseen = false;
	if (!token)
		return false;
	holder = grant_of(token, hold);
	if (holder)
	{
		*unseen = token->nwaiters == 0;
		tl_grant_end(token, holder, TL_EVENT_PUT);
	}
	tl_token_unlock(token);
	return holder != NULL;
}

static bool
release_hold(TlHold *hold)
{
	bool		unseen;
	bool		held = remove_grant(hold, &unseen);

	drop_ended_hold_lock(hold, unseen);
	forget_hold(hold);
	return held;
}

int64
tl_hold_put_all(void)
{
	HASH_SEQ_STATUS status;
	TlHold	   *hold;
	int64		n = 0;

	if (tl_guard_any())
	{
		/* before any is put */
		hash_seq_init(&status, holds);
		while ((hold = hash_seq_search(&status)) != NULL)
		{
			if (tl_guard_has(hold->fence))
			{
				hash_seq_term(&status);
				tl_guard_error_put(&hold->key);
			}
		}
	}
	hash_seq_init(&status, holds);
	while ((hold = hash_seq_search(&status)) != NULL)
		if (release_hold(hold))
			n++;
	return n;
}

bool
tl_hold_in_use(void)
{
	return !dlist_is_empty(&transaction_holds) || tl_guard_any();
}

/*
 * Ends of transactions and sessions
 */

/*
 * Release the holds of a subtransaction, or (InvalidSubTransactionId) those
 * of the whole transaction; and forget a request that an error has ended.
 */
static void
release_transaction_holds(SubTransactionId subid)
{
	dlist_mutable_iter iter;
	bool		all = subid == InvalidSubTransactionId;

	dlist_foreach_modify(iter, &transaction_holds)
	{
		TlHold	   *hold = dlist_container(TlHold, node, iter.cur);

		if (all || hold->subid == subid)
			release_hold(hold);
	}
	if (pending && (all || pending->made_in == subid))
	{
		if (pending->fence == 0)
			forget_hold(pending);
		pending = NULL;
	}
	tl_wait_abort();
	tl_several_abort(subid);
}

/*
 * Is it an error that ends the (sub)transaction?  Not ROLLBACK or ROLLBACK TO,
 * where the block is known to have failed by then; nor the rollback of a
 * procedure or an EXCEPTION block, whose statement goes on.
 */
static bool
statement_has_failed(void)
{
	return TransactionBlockStatusCode() != 'E' && ActivePortal == NULL;
}

/*
 * Release what the session got by a statement that has ended with an error,
 * after it was granted: a caller that gets an error holds nothing by it.
 */
static void
release_failed_statement(void)
{
	dlist_mutable_iter iter;
	TimestampTz statement = GetCurrentStatementStartTimestamp();

	dlist_foreach_modify(iter, &session_holds)
	{
		TlHold	   *hold = dlist_container(TlHold, node, iter.cur);

		if (hold->granted_in == statement)
			release_hold(hold);
	}
}

static void
on_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			tl_stats_publish(false);
			/* as the last thing */
			tl_guard_pin();
			break;
		case XACT_EVENT_ABORT:
			if (statement_has_failed())
				release_failed_statement();
			tl_fallthrough;
		case XACT_EVENT_COMMIT:
			/* at commit, others see by now what the transaction has done */
			tl_guard_end();
			release_transaction_holds(InvalidSubTransactionId);
			tl_gate_drop_spare();
			tl_stats_publish(true);
			break;
		case XACT_EVENT_PREPARE:
			tl_gate_drop_spare();
			break;
		case XACT_EVENT_PRE_PREPARE:
			tl_guard_refuse_prepare();
			if (!dlist_is_empty(&transaction_holds))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds a token of transaction scope"),
						 errhint("Give the token back first, or take it with scope => 'session'.")));
			break;
		default:
			break;
	}
}

static void
on_subxact(SubXactEvent event, SubTransactionId mySubid,
		   SubTransactionId parentSubid, void *arg)
{
	dlist_iter	iter;

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			dlist_foreach(iter, &transaction_holds)
			{
				TlHold	   *hold = dlist_container(TlHold, node, iter.cur);

				if (hold->subid == mySubid)
					hold->subid = parentSubid;
			}
			tl_guard_commit_sub(mySubid, parentSubid);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			tl_guard_abort_sub(mySubid);
			if (statement_has_failed())
				release_failed_statement();
			release_transaction_holds(mySubid);
			break;
		default:
			break;
	}
}

void
tl_hold_discard(void)
{
	if (holds != NULL)
		tl_hold_put_all();
}

/*
 * The session ends, perhaps in the middle of a wait or a transaction.  The
 * transaction's own callbacks run later and find nothing left to do.
 */
static void
on_session_exit(int code, Datum arg)
{
	HASH_SEQ_STATUS status;
	TlHold	   *hold;
	bool		unseen;

	tl_wait_abandon();
	tl_several_abort(InvalidSubTransactionId);
	/* the hold locks go with all the session's locks, a little later */
	hash_seq_init(&status, holds);
	while ((hold = hash_seq_search(&status)) != NULL)
		remove_grant(hold, &unseen);
	tl_token_discard();
	tl_stats_end();
}
