/*-------------------------------------------------------------------------
 *
 * session.c
 *	  Taking, renewing and giving back tokens.
 *
 * Grants of the session itself are entered in a list before anything is asked
 * for (hold.c), so that nothing needs to be allocated once they are given.
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
#include "gate.h"
#include "grant.h"
#include "guard.h"
#include "hold.h"
#include "line.h"
#include "miscadmin.h"
#include "promise.h"
#include "record.h"
#include "recover.h"
#include "session.h"
#include "stats.h"
#include "wait.h"

static TlAnswer get(TlRequest *request);
static bool put(const TlKey *key, const TlOwner *owner, uint64 fence,
				uint64 *recorded);

bool		tl_session_attached = false;

void
tl_session_attach_now(void)
{
	tl_shmem_attach();
	tl_stats_begin();
	tl_hold_attach();
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
	bool		with_hold;
	bool		again;

	tl_hold_retake_locks();

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
	again = tl_hold_enter(request);
	answer = tl_wait_attempt(request, with_hold && !again);
	if (answer < TL_ANSWER_NEW && request->wait != 0)
		answer = tl_wait_in_line(request, with_hold && !again);
	tl_hold_answered(request, answer, again);
	return answer;
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
		tl_hold_put(key, unseen);
	return holder != NULL;
}

void
tl_session_check_put(const TlKey *key, const TlOwner *owner)
{
	if (tl_guard_any() && tl_guard_has(tl_session_fence(key, owner)))
		tl_guard_error_put(key);
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
		tl_hold_restarted(key, longer, grant.dropped_serial != 0);
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

