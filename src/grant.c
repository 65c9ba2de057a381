/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  The holders of a token: who has it, and who may have it.
 *
 *	 request \ held by    nobody   shared   permits (capacity n)   exclusive
 *	 shared               yes      yes      no                     no
 *	 permit, capacity m   yes      no       fewer than m and n     no
 *	 exclusive            yes      no       no                     no
 *
 * Exclusive is a permit of capacity 1: of every two holders, each has accepted
 * the other by its own capacity.  So nobody's exclusion depends on what others
 * ask for.
 *
 * All functions need the token's lock and neither sleep nor allocate.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "fence.h"
#include "grant.h"
#include "line.h"
#include "miscadmin.h"
#include "promise.h"
#include "record.h"
#include "recover.h"
#include "stats.h"

/* A lease that has so long to go has not lapsed, says the coarse clock. */
#define TL_COARSE_MARGIN	(10 * USECS_PER_SEC)

/* Walk through the holders of a token. */
#define foreach_holder(holder, token) \
	for (TlHolder *holder = tl_holder_at((token)->holders); \
		 holder != NULL; \
		 holder = tl_holder_at(holder->next))

/*
 * Reading the exact time is a good part of what a put costs, and most leases
 * are put long before their end.  Who takes a lapsed one for live because the
 * coarse clock is behind finds out later: nobody else had the token meanwhile.
 */
static bool
has_lapsed(const TlHolder *holder)
{
	if (holder->expires == TL_NEVER ||
		holder->expires - tl_token_about() > TL_COARSE_MARGIN)
		return false;
	return holder->expires <= tl_token_now();
}

/* Is this still its owner's, and not only pinned? */
static bool
is_live(const TlHolder *holder)
{
	return !holder->ended && !has_lapsed(holder);
}

/* Does anything keep it, though it is over? */
static bool
is_kept(const TlHolder *holder)
{
	return holder->pins > 0 || holder->writing || holder->record != 0;
}

bool
tl_grant_is_remnant(const TlHolder *holder)
{
	return holder->ended && holder->record != 0 && !holder->writing &&
		holder->pins == 0;
}

static bool
is_owner(const TlHolder *holder, const TlOwner *owner)
{
	if (!owner->named)
		return holder->scope != TL_SCOPE_OWNER &&
			holder->procno == owner->procno && holder->pid == owner->pid;
	return holder->scope == TL_SCOPE_OWNER &&
		holder->role == owner->role && holder->owner_len == owner->len &&
		memcmp(holder->owner, owner->name, owner->len) == 0;
}

TlHolder *
tl_grant_of(TlToken *token, const TlOwner *owner, uint64 fence)
{
	foreach_holder(holder, token)
	{
		if (is_owner(holder, owner) && is_live(holder))
			return fence == 0 || holder->fence == fence ? holder : NULL;
	}
	return NULL;
}

TlHolder *
tl_grant_of_role(TlToken *token, Oid role, uint64 fence)
{
	TlHolder   *holder = tl_grant_live(token, fence);

	return holder && holder->scope == TL_SCOPE_OWNER &&
		holder->role == role ? holder : NULL;
}

TlHolder *
tl_grant_live(TlToken *token, uint64 fence)
{
	TlHolder   *holder = tl_grant_with(token, fence);

	return holder && is_live(holder) ? holder : NULL;
}

TlHolder *
tl_grant_with(TlToken *token, uint64 fence)
{
	foreach_holder(holder, token)
	{
		if (holder->fence == fence)
			return holder;
	}
	return NULL;
}

bool
tl_grant_keeps_lock(const TlRequest *request)
{
	return !request->owner.named && request->ttl == 0 &&
		!request->shared && request->capacity == 1;
}

/* Does the request want more than the owner's shared hold? */
static bool
is_upgrade(const TlHolder *mine, const TlRequest *request)
{
	return mine->capacity == 0 && !request->shared;
}

/*
 * Do the holders leave room for the request?  "mine" is the owner's own
 * shared hold if the request is an upgrade, which does not count, else NULL.
 * It counts while it is pinned: another session of its owner commits under
 * the guard of that very grant.
 */
static bool
has_room(TlToken *token, const TlRequest *request, const TlHolder *mine)
{
	int64		held = 0;
	int64		least = request->capacity;

	foreach_holder(holder, token)
	{
		if ((holder == mine && holder->pins == 0) ||
			tl_grant_is_remnant(holder))
			continue;
		if (request->shared != (holder->capacity == 0))
			return false;
		held++;
		least = Min(least, holder->capacity);
	}
	return request->shared || held < least;
}

/* Asking for the longer scope lengthens the hold. */
static void
lengthen_scope(TlHolder *mine, const TlRequest *request)
{
	if (request->scope > mine->scope)
		mine->scope = request->scope;
}

/*
 * Is there a record for the grant?  When memory is full, that of the waiter
 * whose turn it is will do: it leaves the line with the grant.
 */
static bool
have_record(TlToken *token, const TlOwner *owner)
{
	TlWaiter   *waiter;

	if (tl_token_has_record(owner->len))
		return true;
	waiter = tl_line_waiter_of(token, owner->procno);
	if (waiter && waiter->owner_len == owner->len)
		tl_line_remove(token, waiter);
	return tl_token_has_record(owner->len);
}

/*
 * May a lease of a named owner begin with this ttl now?  A session's grant
 * ends with its session, so what is promised of it ends with the server.
 */
static bool
lacks_promise(TlTime ttl, TlLacks *lacks)
{
	if (ttl == 0 || likely(tl_promise_covers(ttl, tl_token_now())))
		return false;
	lacks->ttl = ttl;
	return true;
}

TlLack
tl_grant_restart_lack(const TlHolder *holder, TlTime ttl, TlLacks *lacks)
{
	if (holder->scope != TL_SCOPE_OWNER)
		return TL_LACK_NOTHING;
	if (ttl == 0)
		ttl = holder->ttl;
	if (unlikely(holder->record != 0 || tl_promise_too_long(ttl)))
	{
		lacks->fence = holder->fence;
		return TL_LACK_RESTART;
	}
	return lacks_promise(ttl, lacks) ? TL_LACK_PROMISE : TL_LACK_NOTHING;
}

/* A remnant that has to be removed before anybody is granted; 0: none. */
static uint64
find_remnant(TlToken *token)
{
	foreach_holder(holder, token)
	{
		if (tl_grant_is_remnant(holder))
			return holder->fence;
	}
	return 0;
}

/*
 * What a grant needs first, that could be given otherwise.  Its ttl is as it
 * will be; "mine" is the shared hold that it replaces, or NULL.
 */
static TlLack
grant_lack(TlToken *token, TlRequest *request, const TlHolder *mine,
		   TlTime ttl)
{
	if (!request->owner.named)
	{
		request->lacks.fence = find_remnant(token);
		return request->lacks.fence != 0 ? TL_LACK_CLEAR : TL_LACK_NOTHING;
	}
	if (mine && mine->writing)
	{
		request->lacks.fence = mine->fence;
		return TL_LACK_WRITER;
	}
	if (unlikely(tl_promise_too_long(ttl) || (mine && mine->record != 0)))
	{
		if (!request->may_record)
			return TL_LACK_PAGES;
	}
	else if (lacks_promise(ttl, &request->lacks))
		return TL_LACK_PROMISE;
	request->lacks.fence = find_remnant(token);
	return request->lacks.fence != 0 ? TL_LACK_CLEAR : TL_LACK_NOTHING;
}

/* Show a request the grant as it is. */
static void
show(const TlHolder *holder, TlGrant *grant)
{
	grant->fence = holder->fence;
	grant->expires = holder->expires;
	grant->hold_serial = holder->hold_serial;
}

TlAnswer
tl_grant_try(TlToken *token, TlRequest *request, uint64 hold_serial,
			 TlLack *lack)
{
	const TlOwner *owner = &request->owner;
	TlHolder   *mine = tl_grant_of(token, owner, 0);
	TlHolder   *holder;
	TlGrant    *grant = &request->grant;
	TlTime		ttl = request->ttl;
	uint64		fence;
	bool		to_record;
	int32		slot = 0;

	*lack = TL_LACK_NOTHING;
	memset(grant, 0, sizeof(*grant));
	if (mine && !is_upgrade(mine, request))
	{
		if (unlikely(request->restarted == mine->fence))
			show(mine, grant);
		else
		{
			*lack = tl_grant_restart_lack(mine, ttl, &request->lacks);
			if (*lack != TL_LACK_NOTHING)
				return TL_ANSWER_BUSY;
			lengthen_scope(mine, request);
			tl_grant_restart(token, mine, ttl, grant);
		}
		return TL_ANSWER_AGAIN;
	}
	if (!has_room(token, request, mine) ||
		(!mine && !tl_line_is_turn(token, owner)) ||
		!tl_recover_may_grant(tl_token_now()))
		return TL_ANSWER_BUSY;

	/* an upgraded lease goes on as it was, unless there is a new ttl */
	if (ttl == 0 && mine)
		ttl = mine->ttl;
	/* an owner may outlive its session, so its grant must have an end */
	if (ttl == 0 && !mine && owner->named && !request->untimed)
		ttl = (TlTime) tl_default_ttl * 1000;
	*lack = grant_lack(token, request, mine, ttl);
	if (*lack != TL_LACK_NOTHING)
		return TL_ANSWER_BUSY;

	/* drawn under the lock, or a later grant could get the smaller number */
	fence = tl_fence_draw();
	if (fence == 0)
	{
		*lack = TL_LACK_FENCE;
		return TL_ANSWER_BUSY;
	}
	if (!mine && !have_record(token, owner))
	{
		*lack = TL_LACK_RECORD;
		return TL_ANSWER_BUSY;
	}
	to_record = owner->named &&
		(tl_promise_too_long(ttl) || (mine && mine->record != 0));
	if (unlikely(to_record))
	{
		slot = mine && mine->record != 0 ? mine->record :
			tl_record_take_slot();
		if (slot == 0)
		{
			*lack = TL_LACK_SLOT;
			return TL_ANSWER_BUSY;
		}
	}

	if (mine)
	{
		holder = mine;
		lengthen_scope(holder, request);
		grant->upgraded_from = holder->fence;
	}
	else
	{
		dsa_pointer record = tl_token_take_record(owner->len);

		holder = tl_holder_at(record);
		holder->next = token->holders;
		holder->role = owner->role;
		holder->procno = owner->procno;
		holder->pid = owner->pid;
		holder->pins = 0;
		holder->record = 0;
		holder->recorded = false;
		holder->writing = false;
		holder->ended = false;
		holder->scope = request->scope;
		holder->owner_len = owner->len;
		memcpy(holder->owner, owner->name, owner->len);
		token->holders = record;
	}
	holder->fence = fence;
	holder->hold_serial = ttl == 0 ? hold_serial : 0;
	holder->capacity = request->shared ? 0 : request->capacity;
	holder->acquired = tl_token_now();
	holder->ttl = ttl;
	holder->expires = ttl == 0 ? TL_NEVER :
		tl_time_add(holder->acquired, ttl);
	tl_shmem_expiry_note(holder->expires);

	if (unlikely(to_record))
	{
		holder->record = slot;
		holder->recorded = false;
		holder->writing = true;
		grant->to_record = true;
	}
	show(holder, grant);
	return TL_ANSWER_NEW;
}

void
tl_grant_copy(const TlHolder *holder, TlLease *lease)
{
	lease->fence = holder->fence;
	lease->ttl = holder->ttl;
	lease->expires = holder->expires;
	lease->acquired = holder->acquired;
	lease->role = holder->role;
	lease->capacity = holder->capacity;
	lease->record = holder->record;
	lease->owner_len = holder->owner_len;
	memcpy(lease->owner, holder->owner, holder->owner_len);
}

bool
tl_grant_revive(const TlKey *key, const TlLease *lease)
{
	TlToken    *token;
	TlHolder   *holder;

	if (!tl_token_prepare(lease->owner_len, false) ||
		!tl_shmem_has_room(TL_TABLE_TOKENS))
		return false;
	token = tl_token_lock(key, true);
	/* an attempt that failed half-way may have done it before */
	if (tl_grant_with(token, lease->fence) == NULL)
	{
		dsa_pointer record = tl_token_take_record(lease->owner_len);

		holder = tl_holder_at(record);
		memset(holder, 0, offsetof(TlHolder, owner));
		holder->next = token->holders;
		holder->fence = lease->fence;
		holder->ttl = lease->ttl;
		holder->expires = lease->expires;
		holder->acquired = lease->acquired;
		holder->role = lease->role;
		holder->capacity = lease->capacity;
		holder->record = lease->record;
		holder->recorded = lease->record != 0;
		holder->scope = TL_SCOPE_OWNER;
		holder->owner_len = lease->owner_len;
		memcpy(holder->owner, lease->owner, lease->owner_len);
		token->holders = record;
		tl_shmem_expiry_note(holder->expires);
	}
	tl_token_unlock(token);
	return true;
}

void
tl_grant_look(TlToken *token, const TlRequest *request, TlLook *look)
{
	TlHolder   *mine = tl_grant_of(token, &request->owner, 0);
	TlHolder   *first = tl_holder_at(token->holders);
	bool		upgrade = mine && is_upgrade(mine, request);

	look->mine = mine && !upgrade;
	look->upgrade = upgrade;
	look->free = has_room(token, request, upgrade ? mine : NULL) &&
		(upgrade || tl_line_is_turn(token, &request->owner));
	look->next_change = tl_line_next_lapse(token, &request->owner);
	if (unlikely(!tl_recover_may_grant(tl_token_now())))
	{
		look->free = false;
		look->next_change = Min(look->next_change, tl_recover_grace_until());
	}
	/* a hold lock is only kept by one that holds alone */
	look->hold_serial = first ? first->hold_serial : 0;
	foreach_holder(holder, token)
	{
		/* a pinned one goes with its transaction, not by the clock */
		if (holder->pins == 0 && !holder->writing && !holder->ended)
			look->next_change = Min(look->next_change, holder->expires);
	}
}

void
tl_grant_restart(TlToken *token, TlHolder *holder, TlTime ttl,
				 TlGrant *grant)
{
	memset(grant, 0, sizeof(*grant));
	if (ttl != 0)
		holder->ttl = ttl;
	if (holder->ttl != 0)
		tl_grant_set_end(token, holder, holder->ttl,
						 tl_time_add(tl_token_now(), holder->ttl), grant);
	else
		show(holder, grant);
}

void
tl_grant_set_end(TlToken *token, TlHolder *holder, TlTime ttl,
				 TlTime expires, TlGrant *grant)
{
	bool		sooner = expires < holder->expires;

	memset(grant, 0, sizeof(*grant));
	holder->ttl = ttl;
	holder->expires = expires;
	tl_shmem_expiry_note(expires);
	/* a timed grant keeps no lock: its end could not wake who waits on it */
	grant->dropped_serial = holder->hold_serial;
	holder->hold_serial = 0;
	if (sooner)
		tl_token_wake(token);
	show(holder, grant);
}

static void
remove_holder(TlToken *token, TlHolder *holder)
{
	dsa_pointer *link = &token->holders;
	dsa_pointer removed;

	while (tl_holder_at(*link) != holder)
		link = &tl_holder_at(*link)->next;
	removed = *link;
	*link = holder->next;
	tl_token_give_record(removed, holder->owner_len);
	tl_token_wake(token);
}

/* A lease's end has come. */
static void
end_lapsed(TlToken *token, TlHolder *holder)
{
	if (token->key.database == MyDatabaseId)
		tl_stats_ended(&token->key, TL_EVENT_EXPIRY,
					   holder->expires - holder->acquired);
	if (!is_kept(holder))
		remove_holder(token, holder);
	else
	{
		holder->ended = true;
		tl_token_wake(token);
	}
}

void
tl_grant_end(TlToken *token, TlHolder *holder, TlEvent how)
{
	/* not of a database that is being dropped */
	if (token->key.database == MyDatabaseId)
		tl_stats_ended(&token->key, how,
					   Max(tl_token_about() - holder->acquired, 0));
	if (!is_kept(holder))
		remove_holder(token, holder);
	else
	{
		holder->ended = true;
		holder->hold_serial = 0;
		tl_token_wake(token);
	}
}

void
tl_grant_purge(TlToken *token, TlHolder *holder)
{
	holder->record = 0;
	holder->writing = false;
	if (holder->ended && holder->pins == 0)
		remove_holder(token, holder);
	else if (!holder->ended)
		tl_grant_end(token, holder, TL_EVENT_PUT);
}

void
tl_grant_set_hold(TlToken *token, TlHolder *holder, uint64 serial)
{
	holder->hold_serial = serial;
	tl_token_wake(token);
}

void
tl_grant_pin(TlHolder *holder)
{
	holder->pins++;
}

void
tl_grant_unpin(TlToken *token, TlHolder *holder)
{
	Assert(holder->pins > 0);
	if (--holder->pins == 0)
		tl_grant_settle(token, holder);
}

void
tl_grant_settle(TlToken *token, TlHolder *holder)
{
	if (holder->pins > 0 || holder->writing)
		return;
	if (holder->ended && holder->record == 0)
		remove_holder(token, holder);
	else if (!holder->ended && has_lapsed(holder))
		end_lapsed(token, holder);
	else
		tl_token_wake(token);	/* the clock counts again; an upgrade may go
								 * on */
}

/* Does not ask for the time where nothing can lapse. */
void
tl_grant_remove_lapsed(TlToken *token)
{
	TlHolder   *next;

	for (TlHolder *holder = tl_holder_at(token->holders);
		 holder != NULL;
		 holder = next)
	{
		next = tl_holder_at(holder->next);
		if (holder->pins == 0 && !holder->writing && !holder->ended &&
			has_lapsed(holder))
			end_lapsed(token, holder);
	}
}
