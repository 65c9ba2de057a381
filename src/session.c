/*-------------------------------------------------------------------------
 *
 * session.c
 *	  Taking and giving back tokens, and what this session must give back.
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
 * Locks: one token's at a time (token.c); none while calling wait.c.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "clock.h"
#include "compat.h"
#include "gate.h"
#include "grant.h"
#include "guard.h"
#include "lib/ilist.h"
#include "line.h"
#include "miscadmin.h"
#include "promise.h"
#include "record.h"
#include "recover.h"
#include "session.h"
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
	TimestampTz granted_in;		/* start of the statement that was granted
								 * it, or its session scope */
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
static TlAnswer get(TlRequest *request);
static TlHold *enter_hold(const TlRequest *request, bool *found);
static void forget_hold(TlHold *hold);
static void note_grant(TlHold *hold, const TlRequest *request,
					   TlAnswer answer, bool again);
static bool put(const TlKey *key, const TlOwner *owner, uint64 fence,
				uint64 *recorded);
static bool release_hold(TlHold *hold);
static void give_hold_lock(TlHold *hold);
static void retake_lost_locks(void);

bool		tl_session_attached = false;

void
tl_session_attach_now(void)
{
	HASHCTL		ctl = {0};

	tl_shmem_attach();
	tl_stats_begin();

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
	tl_session_attached = true;
}

void
tl_session_attach_primary(void)
{
	tl_session_attach();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tokens and jobs cannot be taken during recovery"),
				 errhint("Connect to the primary server: what a standby answers could not bind it.")));
	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("tokens and jobs cannot be taken during a parallel operation"),
				 errhint("Functions that call those of tokenlock must be marked PARALLEL UNSAFE.")));
	tl_recover();
}

void
tl_session_owner(TlOwner *owner)
{
	owner->role = GetUserId();
	owner->procno = tl_my_procno();
	owner->pid = MyProcPid;
	owner->named = false;
	owner->len = 0;
}

/*
 * Requests
 */

TlAnswer
tl_session_get(TlRequest *request)
{
	TlAnswer	answer;

	tl_stats_prepare(&request->key);
	if (!request->made_again)
		tl_stats_count(&request->key, TL_EVENT_GET, 1);
	answer = get(request);
	if (answer == TL_ANSWER_NEW && request->grant.upgraded_from != 0)
		tl_guard_upgraded(request->grant.upgraded_from, request->grant.fence);
	if (answer == TL_ANSWER_NEW)
		tl_stats_count(&request->key, TL_EVENT_GRANT, 1);
	else if (answer != TL_ANSWER_AGAIN && !request->goes_on)
		tl_stats_count(&request->key, TL_EVENT_REFUSAL, 1);
	return answer;
}

static TlAnswer
get(TlRequest *request)
{
	TlAnswer	answer;
	TlHold	   *hold;
	bool		with_hold;
	bool		again;

	retake_lost_locks();

	if (request->owner.named)
	{
		answer = tl_wait_attempt(request, false);
		if (answer < TL_ANSWER_NEW && request->wait != 0)
			answer = tl_wait_in_line(request, false);
		return answer;
	}

	/*
	 * An untimed grant keeps a hold lock, taken before it.  Who has the token
	 * already needs no other.
	 */
	with_hold = tl_grant_keeps_lock(request);
	pending = hold = enter_hold(request, &again);
	answer = tl_wait_attempt(request, with_hold && !again);
	if (answer < TL_ANSWER_NEW && request->wait != 0)
		answer = tl_wait_in_line(request, with_hold && !again);
	pending = NULL;
	note_grant(hold, request, answer, again);
	return answer;
}

/*
 * The list's entry for a request.  If there is one already, then it is of a
 * grant that is being asked for again, or that has lapsed.
 */
static TlHold *
enter_hold(const TlRequest *request, bool *found)
{
	TlHold	   *hold = hash_search(holds, &request->key, HASH_ENTER, found);

	if (!*found)
	{
		hold->fence = 0;
		hold->hold_serial = 0;
		hold->subid = InvalidSubTransactionId;
		hold->granted_in = 0;
		dlist_push_tail(&session_holds, &hold->node);
	}
	hold->made_in = GetCurrentSubTransactionId();
	return hold;
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

/*
 * Complete the list's entry for a request that is answered.  again: the entry
 * is of an earlier grant.
 */
static void
note_grant(TlHold *hold, const TlRequest *request, TlAnswer answer,
		   bool again)
{
	const TlGrant *grant = &request->grant;

	switch (answer)
	{
		case TL_ANSWER_BUSY:
		case TL_ANSWER_QUEUED:
			/* the earlier grant may be a shared one that goes on, or over */
			if (again &&
				tl_session_fence(&hold->key, &request->owner) == hold->fence)
				break;
			drop_hold_lock(hold);
			forget_hold(hold);
			break;
		case TL_ANSWER_NEW:
			drop_hold_lock(hold);
			hold->fence = grant->fence;
			set_hold_lock(hold, grant->hold_serial);
			/* an upgrade of the session's hold is none that an error takes back */
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

/* Take a hold lock for an untimed grant that has none. */
static void
give_hold_lock(TlHold *hold)
{
	/* a new key each time: somebody may have got the old lock just now */
	uint64		serial = tl_gate_take_hold();
	TlToken    *token = tl_token_lock(&hold->key, false);
	TlHolder   *holder = NULL;
	TlOwner		owner;

	if (token)
	{
		tl_session_owner(&owner);
		holder = tl_grant_of(token, &owner, hold->fence);
		if (holder)
			tl_grant_set_hold(token, holder, serial);
		tl_token_unlock(token);
	}
	set_hold_lock(hold, holder ? serial : 0);
	if (!holder)
		tl_gate_drop_hold(serial);
}

/*
 * pg_advisory_unlock_all() takes away all hold locks at once.  The tokens are
 * held nevertheless, but the deadlock detector does not see it any more, so
 * take new ones.  If one lock is there, all are.
 */
static void
retake_lost_locks(void)
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
			hash_seq_term(&status);
			return;
		}
		give_hold_lock(hold);
	}
}

/*
 * Find the owner's grant, as tl_session_put describes it.
 */
static TlHolder *
find_grant(TlToken *token, const TlOwner *owner, uint64 fence)
{
	TlHolder   *holder = tl_grant_of(token, owner, fence);

	if (holder == NULL && fence != 0 && !owner->named)
		holder = tl_grant_of_role(token, owner->role, fence);
	return holder;
}

bool
tl_session_put(const TlKey *key, const TlOwner *owner, uint64 fence)
{
	uint64		recorded;
	bool		held = put(key, owner, fence, &recorded);

	if (unlikely(recorded != 0))
		tl_record_clear(key, recorded);
	return held;
}

void
tl_session_put_in_memory(const TlKey *key, const TlOwner *owner, uint64 fence)
{
	uint64		recorded;

	(void) put(key, owner, fence, &recorded);
}

/*
 * Put in memory.  *recorded is the fence of what was put if there is a record
 * of it to be removed, else 0.
 */
static bool
put(const TlKey *key, const TlOwner *owner, uint64 fence, uint64 *recorded)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder = NULL;
	bool		ours = !owner->named && fence == 0;
	bool		guarded = false;
	bool		unseen = false;

	*recorded = 0;
	if (token)
	{
		holder = find_grant(token, owner, fence);
		if (holder)
		{
			ours = holder->scope != TL_SCOPE_OWNER;
			guarded = tl_guard_has(holder->fence);
			unseen = token->nwaiters == 0;
			if (holder->record != 0)
				*recorded = holder->fence;
			if (!guarded)
				tl_grant_end(token, holder, TL_EVENT_PUT);
		}
		tl_token_unlock(token);
	}
	if (guarded)
		tl_guard_error_put(key);

	/*
	 * Only then the lock: who gets it looks at the entry.  What is left of a
	 * grant of ours that has lapsed or was broken goes by the way.
	 */
	if (ours)
	{
		TlHold	   *hold = hash_search(holds, key, HASH_FIND, NULL);

		if (hold)
		{
			drop_ended_hold_lock(hold, unseen);
			forget_hold(hold);
		}
	}
	return holder != NULL;
}

void
tl_session_check_put(const TlKey *key, const TlOwner *owner)
{
	if (tl_guard_any() && tl_guard_has(tl_session_fence(key, owner)))
		tl_guard_error_put(key);
}

int64
tl_session_put_all(void)
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

/* Keys of the tokens that an owner holds, collected by collect_key. */
typedef struct KeyList
{
	const TlOwner *owner;
	TlKey	   *keys;
	int			n;
	int			allocated;
} KeyList;

static void
collect_key(TlToken *token, TlTime now, void *arg)
{
	KeyList    *list = arg;

	if (tl_grant_of(token, list->owner, 0) == NULL)
		return;
	if (list->n == list->allocated)
	{
		list->allocated *= 2;
		list->keys = repalloc_huge(list->keys,
								   list->allocated * sizeof(TlKey));
	}
	list->keys[list->n++] = token->key;
}

int64
tl_session_put_all_of(const TlOwner *owner)
{
	KeyList		list = {.owner = owner,.allocated = 64};
	int64		n = 0;

	list.keys = palloc(list.allocated * sizeof(TlKey));
	tl_token_visit(collect_key, &list);
	for (int i = 0; i < list.n; i++)
		tl_session_check_put(&list.keys[i], owner);
	for (int i = 0; i < list.n; i++)
		if (tl_session_put(&list.keys[i], owner, 0))
			n++;
	pfree(list.keys);
	return n;
}

bool
tl_session_renew(const TlKey *key, const TlOwner *owner, uint64 fence,
				 TlTime ttl, TlScope scope)
{
	TlToken    *token;
	TlHolder   *holder;
	TlGrant		grant;
	TlLack		lack;
	TlLacks		lacks;
	bool		mine = false;
	bool		longer = false;

	for (;;)
	{
		token = tl_token_lock(key, false);
		if (!token)
			return false;
		holder = find_grant(token, owner, fence);
		lack = holder ? tl_grant_restart_lack(holder, ttl, &lacks) :
			TL_LACK_NOTHING;
		if (likely(lack == TL_LACK_NOTHING))
			break;
		tl_token_unlock(token);
		if (lack == TL_LACK_PROMISE)
			tl_promise_reserve(lacks.ttl);
		else if (tl_record_restart(key, lacks.fence, ttl, &grant))
			return true;
	}
	if (holder)
	{
		mine = holder->scope != TL_SCOPE_OWNER;
		longer = mine && scope > holder->scope;
		if (longer)
			holder->scope = scope;
		tl_grant_restart(token, holder, ttl, &grant);
	}
	tl_token_unlock(token);

	if (mine && (longer || grant.dropped_serial != 0))
	{
		TlHold	   *hold = hash_search(holds, key, HASH_FIND, NULL);

		if (hold && longer)
			set_scope(hold, InvalidSubTransactionId);
		if (hold && grant.dropped_serial != 0)
			drop_hold_lock(hold);
	}
	return holder != NULL;
}

uint64
tl_session_fence(const TlKey *key, const TlOwner *owner)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder;
	uint64		fence = 0;

	if (!token)
		return 0;
	holder = tl_grant_of(token, owner, 0);
	if (holder)
		fence = holder->fence;
	tl_token_unlock(token);
	return fence;
}

bool
tl_session_shares(const TlKey *key, const TlOwner *owner)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder;
	bool		shared;

	if (!token)
		return false;
	holder = tl_grant_of(token, owner, 0);
	shared = holder && holder->capacity == 0;
	tl_token_unlock(token);
	return shared;
}

bool
tl_session_break(const TlKey *key, uint64 fence, TlBroken *broken)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder;
	uint64		hold_serial = 0;
	bool		recorded = false;
	int			head = -1;

	if (!token)
		return false;
	holder = tl_grant_live(token, fence);
	if (holder && holder->role == broken->role)
	{
		broken->pid = holder->scope == TL_SCOPE_OWNER ? 0 : holder->pid;
		broken->owner_len = holder->owner_len;
		memcpy(broken->owner, holder->owner, holder->owner_len);
		hold_serial = holder->hold_serial;
		recorded = holder->record != 0;
		if (hold_serial != 0 && token->head_procno >= 0)
		{
			/* it may be waiting for a lock that its holder goes on to have */
			head = token->head_procno;
			tl_line_waiter_of(token, head)->kicked = true;
		}
		tl_grant_end(token, holder, TL_EVENT_BREAK);
	}
	else
		holder = NULL;
	tl_token_unlock(token);

	if (head >= 0)
		tl_gate_kick(key, head, hold_serial, TL_CLASS_HOLD);
	if (recorded)
		tl_record_clear(key, fence);
	return holder != NULL;
}

Oid
tl_session_holder_role(const TlKey *key, uint64 fence)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder;
	Oid			role = InvalidOid;

	if (!token)
		return InvalidOid;
	holder = tl_grant_live(token, fence);
	if (holder)
		role = holder->role;
	tl_token_unlock(token);
	return role;
}

bool
tl_session_in_use(void)
{
	return !dlist_is_empty(&transaction_holds) || tl_guard_any();
}

/*
 * Ends of transactions and sessions
 */

/*
 * Remove a grant from shared memory; false when it was not there any more.
 * *unseen: see drop_ended_hold_lock.
 */
static bool
remove_grant(const TlHold *hold, bool *unseen)
{
	TlToken    *token = tl_token_lock(&hold->key, false);
	TlHolder   *holder;
	TlOwner		owner;

	*unseen = false;
	if (!token)
		return false;
	owner.named = false;
	owner.procno = tl_my_procno();
	owner.pid = MyProcPid;
	holder = tl_grant_of(token, &owner, hold->fence);
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
tl_session_discard(void)
{
	if (holds != NULL)
		tl_session_put_all();
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
