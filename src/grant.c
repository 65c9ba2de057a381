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
		if (holder == mine && holder->pins == 0)
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

	*lack = TL_LACK_NOTHING;
	memset(grant, 0, sizeof(*grant));
	if (mine && !is_upgrade(mine, request))
	{
		lengthen_scope(mine, request);
		tl_grant_restart(token, mine, ttl, grant);
		return TL_ANSWER_AGAIN;
	}
	if (!has_room(token, request, mine) ||
		(!mine && !tl_line_is_turn(token, owner)))
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

	if (mine)
	{
		/* its lease goes on as it was, unless there is a new ttl */
		holder = mine;
		if (ttl == 0)
			ttl = holder->ttl;
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
		holder->ended = false;
		holder->scope = request->scope;
		holder->owner_len = owner->len;
		memcpy(holder->owner, owner->name, owner->len);
		token->holders = record;
		/* an owner may outlive its session, so its grant must have an end */
		if (ttl == 0 && owner->named && !request->untimed)
			ttl = (TlTime) tl_default_ttl * 1000;
	}
	holder->fence = fence;
	holder->hold_serial = ttl == 0 ? hold_serial : 0;
	holder->capacity = request->shared ? 0 : request->capacity;
	holder->acquired = tl_token_now();
	holder->ttl = ttl;
	holder->expires = ttl == 0 ? TL_NEVER :
		tl_time_add(holder->acquired, ttl);
	tl_shmem_expiry_note(holder->expires);

	grant->fence = fence;
	grant->expires = holder->expires;
	grant->hold_serial = holder->hold_serial;
	return TL_ANSWER_NEW;
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
	/* a hold lock is only kept by one that holds alone */
	look->hold_serial = first ? first->hold_serial : 0;
	look->next_change = tl_line_next_lapse(token, &request->owner);
	foreach_holder(holder, token)
	{
		/* a pinned one goes with its transaction, not by the clock */
		if (holder->pins == 0)
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
	{
		TlTime		expires = tl_time_add(tl_token_now(), holder->ttl);
		bool		sooner = expires < holder->expires;

		holder->expires = expires;
		tl_shmem_expiry_note(expires);
		/* a timed grant keeps no lock: its end could not wake who waits on it */
		grant->dropped_serial = holder->hold_serial;
		holder->hold_serial = 0;
		if (sooner)
			tl_token_wake(token);
	}
	grant->fence = holder->fence;
	grant->expires = holder->expires;
	grant->hold_serial = holder->hold_serial;
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

static void
remove_lapsed(TlToken *token, TlHolder *holder)
{
	if (token->key.database == MyDatabaseId)
		tl_stats_ended(&token->key, TL_EVENT_EXPIRY,
					   holder->expires - holder->acquired);
	remove_holder(token, holder);
}

void
tl_grant_end(TlToken *token, TlHolder *holder, TlEvent how)
{
	/* not of a database that is being dropped */
	if (token->key.database == MyDatabaseId)
		tl_stats_ended(&token->key, how,
					   Max(tl_token_about() - holder->acquired, 0));
	if (holder->pins == 0)
		remove_holder(token, holder);
	else
	{
		holder->ended = true;
		holder->hold_serial = 0;
		tl_token_wake(token);
	}
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
	if (--holder->pins > 0)
		return;
	if (holder->ended)
		remove_holder(token, holder);
	else if (has_lapsed(holder))
		remove_lapsed(token, holder);
	else
		tl_token_wake(token);	/* the clock counts again; an upgrade may go on */
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
		if (holder->pins == 0 && has_lapsed(holder))
			remove_lapsed(token, holder);
	}
}
