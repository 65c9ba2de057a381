/*-------------------------------------------------------------------------
 *
 * line.c
 *	  The line of those who wait for a token.
 *
 * Sessions queue on the gate (wait.c), and the lock queue there is the only
 * order among them: the ticket that one drew here and its arrival there may
 * be the other way round.  A ticket orders places, which have no process in
 * that queue, among themselves and against the head.
 *
 * Two kinds of waiters never queue on the gate.  A shared holder that wants
 * the token alone would wait there behind others that wait for it.  An owner
 * with a place would wait behind others that let it go first.  Both sleep on
 * their latches.
 *
 * All functions need the token's lock and neither sleep nor allocate.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "line.h"

/* Walk through the waiters of a token. */
#define foreach_waiter(waiter, token) \
	for (TlWaiter *waiter = tl_waiter_at((token)->waiters); \
		 waiter != NULL; \
		 waiter = tl_waiter_at(waiter->next))

/* Does this waiter's session sleep on its latch, outside of the gate? */
static bool
is_sleeper(const TlWaiter *waiter)
{
	return waiter->standing != TL_STANDING_GATE && waiter->procno >= 0;
}

static bool
is_owner(const TlWaiter *waiter, const TlOwner *owner)
{
	return owner->named && waiter->role == owner->role &&
		waiter->owner_len == owner->len &&
		memcmp(waiter->owner, owner->name, owner->len) == 0;
}

/* Put a waiter's record at the end of the line. */
static void
append(TlToken *token, dsa_pointer record)
{
	TlWaiter   *waiter = tl_waiter_at(record);
	TlWaiter   *last = NULL;

	foreach_waiter(other, token)
		last = other;

	waiter->next = InvalidDsaPointer;
	waiter->ticket = last ? last->ticket + 1 : 1;
	if (last)
		last->next = record;
	else
		token->waiters = record;
	token->nwaiters++;
	if (is_sleeper(waiter))
		token->nsleepers++;
	if (token->queue_serial == 0)
		token->queue_serial = tl_shmem_next_serial();
	if (waiter->standing == TL_STANDING_PLACE)
		tl_shmem_expiry_note(waiter->deadline);
}

TlWaiter *
tl_line_add(TlToken *token, const TlRequest *request, TlStanding standing,
			TlTime deadline)
{
	const TlOwner *owner = &request->owner;
	dsa_pointer record = tl_token_take_record(owner->len);
	TlWaiter   *waiter = tl_waiter_at(record);

	waiter->since = tl_token_now();
	waiter->deadline = deadline;
	waiter->role = owner->role;
	waiter->procno = standing == TL_STANDING_PLACE ? -1 : owner->procno;
	waiter->pid = owner->pid;
	waiter->standing = standing;
	waiter->kicked = false;
	waiter->owner_len = owner->len;
	memcpy(waiter->owner, owner->name, owner->len);
	append(token, record);
	return waiter;
}

void
tl_line_copy_place(const TlWaiter *waiter, TlPlace *place)
{
	place->since = waiter->since;
	place->deadline = waiter->deadline;
	place->role = waiter->role;
	place->owner_len = waiter->owner_len;
	memcpy(place->owner, waiter->owner, waiter->owner_len);
}

void
tl_line_revive(const TlKey *key, const TlPlace *place)
{
	TlToken    *token;
	TlWaiter   *waiter;
	dsa_pointer record;

	if (!tl_token_prepare(place->owner_len, false) ||
		!tl_shmem_has_room(TL_TABLE_TOKENS))
		return;
	token = tl_token_lock(key, true);
	record = tl_token_take_record(place->owner_len);
	waiter = tl_waiter_at(record);
	memset(waiter, 0, offsetof(TlWaiter, owner));
	waiter->since = place->since;
	waiter->deadline = place->deadline;
	waiter->role = place->role;
	waiter->procno = -1;
	waiter->standing = TL_STANDING_PLACE;
	waiter->owner_len = place->owner_len;
	memcpy(waiter->owner, place->owner, place->owner_len);
	append(token, record);
	tl_token_unlock(token);
}

void
tl_line_remove(TlToken *token, TlWaiter *waiter)
{
	dsa_pointer *link = &token->waiters;
	dsa_pointer removed;

	/* a session that sleeps on a place which another one's grant ends */
	if (is_sleeper(waiter))
		tl_token_wake(token);

	while (tl_waiter_at(*link) != waiter)
		link = &tl_waiter_at(*link)->next;
	removed = *link;
	*link = waiter->next;
	token->nwaiters--;
	if (is_sleeper(waiter))
		token->nsleepers--;
	if (waiter->standing == TL_STANDING_GATE &&
		waiter->procno == token->head_procno)
		token->head_procno = -1;
	tl_token_give_record(removed, waiter->owner_len);
	tl_token_wake(token);
}

TlWaiter *
tl_line_waiter_of(TlToken *token, int procno)
{
	foreach_waiter(waiter, token)
	{
		if (waiter->procno == procno)
			return waiter;
	}
	return NULL;
}

TlWaiter *
tl_line_upgrader(TlToken *token)
{
	foreach_waiter(waiter, token)
	{
		if (waiter->standing == TL_STANDING_UPGRADE)
			return waiter;
	}
	return NULL;
}

TlWaiter *
tl_line_place_of(TlToken *token, const TlOwner *owner)
{
	foreach_waiter(waiter, token)
	{
		if (waiter->standing == TL_STANDING_PLACE && is_owner(waiter, owner))
			return waiter;
	}
	return NULL;
}

bool
tl_line_is_turn(TlToken *token, const TlOwner *owner)
{
	TlWaiter   *head = NULL;
	TlWaiter   *oldest_session = NULL;
	TlWaiter   *oldest_place = NULL;

	if (token->nwaiters == 0)
		return true;

	foreach_waiter(waiter, token)
	{
		switch ((TlStanding) waiter->standing)
		{
			case TL_STANDING_UPGRADE:
				return false;
			case TL_STANDING_GATE:
				if (waiter->procno == token->head_procno)
					head = waiter;
				if (!oldest_session)
					oldest_session = waiter;
				break;
			case TL_STANDING_PLACE:
				if (!oldest_place)
					oldest_place = waiter;
				break;
			case TL_STANDING_NONE:
				break;
		}
	}

	/* until there is a head, the first that will ask for the gate counts */
	if (!head)
		head = oldest_session;
	if (oldest_place && (!head || oldest_place->ticket < head->ticket))
		return is_owner(oldest_place, owner);
	return head && token->head_procno == owner->procno &&
		head->procno == owner->procno;
}

TlTime
tl_line_next_lapse(TlToken *token, const TlOwner *owner)
{
	TlTime		next = TL_NEVER;

	foreach_waiter(waiter, token)
	{
		if (waiter->standing == TL_STANDING_PLACE && waiter->procno < 0 &&
			!is_owner(waiter, owner))
			next = Min(next, waiter->deadline);
	}
	return next;
}

int64
tl_line_number(TlToken *token, const TlWaiter *waiter)
{
	int64		number = 1;

	if (waiter->standing == TL_STANDING_UPGRADE)
		return 1;
	foreach_waiter(other, token)
	{
		if (other->ticket < waiter->ticket ||
			other->standing == TL_STANDING_UPGRADE)
			number++;
	}
	return number;
}

void
tl_line_occupy(TlToken *token, TlWaiter *place, const TlOwner *owner)
{
	Assert(place->procno < 0);
	place->procno = owner->procno;
	place->pid = owner->pid;
	token->nsleepers++;
}

void
tl_line_vacate(TlToken *token, TlWaiter *place, TlTime until)
{
	Assert(place->procno >= 0);
	place->procno = -1;
	token->nsleepers--;
	place->deadline = TL_NEVER;
	tl_line_keep(token, place, until);
}

void
tl_line_keep(TlToken *token, TlWaiter *place, TlTime until)
{
	bool		sooner = until < place->deadline;

	Assert(place->procno < 0);
	place->deadline = until;
	tl_shmem_expiry_note(until);
	/* those behind it sleep until it lapses */
	if (sooner)
		tl_token_wake(token);
}

int
tl_line_kick(TlToken *token, const TlOwner *owner, int *procnos, int max)
{
	int			n = 0;

	if (!owner->named || token->nwaiters == 0)
		return 0;
	foreach_waiter(waiter, token)
	{
		if (n < max && waiter->standing == TL_STANDING_GATE &&
			waiter->procno != owner->procno && is_owner(waiter, owner))
		{
			waiter->kicked = true;
			procnos[n++] = waiter->procno;
		}
	}
	return n;
}

void
tl_line_remove_places(TlToken *token)
{
	TlWaiter   *next;

	for (TlWaiter *waiter = tl_waiter_at(token->waiters);
		 waiter != NULL;
		 waiter = next)
	{
		next = tl_waiter_at(waiter->next);
		if (waiter->standing == TL_STANDING_PLACE && waiter->procno < 0)
			tl_line_remove(token, waiter);
	}
}

/* Does not ask for the time where nothing can lapse. */
void
tl_line_remove_lapsed(TlToken *token)
{
	TlWaiter   *next;

	if (token->nwaiters == 0)
		return;
	for (TlWaiter *waiter = tl_waiter_at(token->waiters);
		 waiter != NULL;
		 waiter = next)
	{
		next = tl_waiter_at(waiter->next);
		if (waiter->standing == TL_STANDING_PLACE && waiter->procno < 0 &&
			waiter->deadline <= tl_token_now())
			tl_line_remove(token, waiter);
	}
}
