/*-------------------------------------------------------------------------
 *
 * job_turns.c
 *	  The turns of one job table in shared memory: found by the hash of their
 *	  value, and those on offer in the order in which they came free.
 *
 * Turns go by their places, which are numbers, as the memory moves when it
 * grows.
 *
 * Locks: callers have the lock of the job table's entry.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job_turns.h"

Size
tl_turns_size(int capacity)
{
	return MAXALIGN(sizeof(int) * capacity) + sizeof(TlTurn) * capacity;
}

static int *
buckets(const TlTurns *turns)
{
	return tl_shmem_address(turns->memory);
}

TlTurn *
tl_turns_place(const TlTurns *turns, int at)
{
	return (TlTurn *) ((char *) tl_shmem_address(turns->memory) +
					   MAXALIGN(sizeof(int) * turns->capacity)) + at;
}

static int
place_of(const TlTurns *turns, const TlTurn *turn)
{
	return turn - tl_turns_place(turns, 0);
}

static int *
bucket_of(const TlTurns *turns, uint64 hash)
{
	/* the capacity is a power of two */
	return &buckets(turns)[hash & (turns->capacity - 1)];
}

TlTurn *
tl_turns_find(const TlTurns *turns, uint64 hash)
{
	int			at = turns->n > 0 ? *bucket_of(turns, hash) : -1;

	while (at >= 0)
	{
		TlTurn	   *turn = tl_turns_place(turns, at);

		if (turn->hash == hash)
			return turn;
		at = turn->next;
	}
	return NULL;
}

bool
tl_turns_have_room(const TlTurns *turns, int n)
{
	return turns->capacity - turns->n >= n;
}

TlTurn *
tl_turns_add(TlTurns *turns, uint64 hash, const TlKeyType *type, Datum value)
{
	int		   *bucket = bucket_of(turns, hash);
	int			at;
	TlTurn	   *turn;

	Assert(tl_turns_have_room(turns, 1));
	if (turns->unused >= 0)
	{
		at = turns->unused;
		turns->unused = tl_turns_place(turns, at)->next;
	}
	else
		at = turns->fresh++;
	turns->n++;
	turn = tl_turns_place(turns, at);
	memset(turn, 0, sizeof(TlTurn));
	turn->hash = hash;
	turn->next = *bucket;
	*bucket = at;
	turn->before = turn->behind = -1;
	tl_point_set(&turn->value, type, value);
	return turn;
}

void
tl_turns_withdraw(TlTurns *turns, TlTurn *turn)
{
	if (!turn->offered)
		return;
	if (turn->before >= 0)
		tl_turns_place(turns, turn->before)->behind = turn->behind;
	else
		turns->first = turn->behind;
	if (turn->behind >= 0)
		tl_turns_place(turns, turn->behind)->before = turn->before;
	else
		turns->last = turn->before;
	turn->before = turn->behind = -1;
	turn->offered = false;
}

void
tl_turns_discard(TlTurns *turns, TlTurn *turn)
{
	int			at = place_of(turns, turn);
	int		   *link = bucket_of(turns, turn->hash);

	Assert(turn->owner == 0);
	tl_turns_withdraw(turns, turn);
	while (*link != at)
		link = &tl_turns_place(turns, *link)->next;
	*link = turn->next;
	turn->hash = 0;
	turn->next = turns->unused;
	turns->unused = at;
	turns->n--;
}

void
tl_turns_offer(TlJobTable *table, TlTurn *turn)
{
	TlTurns    *turns = &table->turns;

	turn->held_until = 0;
	if (turn->offered)
		return;
	if (!turns->positions)
		tl_turns_discard(turns, turn);	/* claimers come across its rows */
	else if (!turn->value.known)
	{
		/* too long to be kept */
		tl_position_forget_locked(table);
		tl_turns_discard(turns, turn);
	}
	else
	{
		turn->offered = true;
		turn->before = turns->last;
		turn->behind = -1;
		if (turns->last >= 0)
			tl_turns_place(turns, turns->last)->behind = place_of(turns, turn);
		else
			turns->first = place_of(turns, turn);
		turns->last = place_of(turns, turn);
	}
}

void
tl_turns_forget(TlTurns *turns)
{
	turns->forget = false;
	for (int at = 0; at < turns->fresh; at++)
	{
		TlTurn	   *turn = tl_turns_place(turns, at);

		if (turn->hash == 0)
			continue;
		tl_turns_withdraw(turns, turn);
		turn->passed = false;
		turn->head.known = false;
		turn->value.known = false;
		if (turn->owner == 0 && !TransactionIdIsValid(turn->prepared))
			tl_turns_discard(turns, turn);
	}
}

void
tl_turns_move(TlTurns *turns, dsa_pointer memory, int capacity)
{
	TlTurns		old = *turns;

	turns->memory = memory;
	turns->capacity = capacity;
	for (int i = 0; i < capacity; i++)
		buckets(turns)[i] = -1;
	if (old.capacity == 0)
	{
		turns->unused = turns->first = turns->last = -1;
		return;
	}
	memcpy(tl_turns_place(turns, 0), tl_turns_place(&old, 0),
		   sizeof(TlTurn) * old.fresh);
	for (int at = 0; at < turns->fresh; at++)
	{
		TlTurn	   *turn = tl_turns_place(turns, at);
		int		   *bucket;

		if (turn->hash == 0)
			continue;
		bucket = bucket_of(turns, turn->hash);
		turn->next = *bucket;
		*bucket = at;
	}
}
