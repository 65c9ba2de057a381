/*-------------------------------------------------------------------------
 *
 * token.c
 *	  The entries of tokens in shared memory: their life, locks and records.
 *
 * The holders in an entry are the truth about a token.  The locks of wait.c
 * only serve to queue and to be seen by the deadlock detector: what they say
 * may lag behind, and the user can drop them behind our back.
 *
 * Whoever removes a holder, waiter or place, ends a lease or place sooner, gives
 * a holder a hold lock or becomes the head calls tl_token_wake before the entry
 * is unlocked, because those who wait decide for themselves what to do and have
 * no other way to learn of it.
 *
 * Nothing here sleeps, reads catalogs or runs user code.  Records come out of
 * a spare block, allocated before the entry is locked.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "compat.h"
#include "grant.h"
#include "line.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "token.h"

/* Owner names up to this length fit into the usual record. */
#define TL_USUAL_OWNER_LEN	24

#define tokens_table()	tl_shmem_table(TL_TABLE_TOKENS)

/*
 * One record set aside, so that a get and put in turn need not go to the
 * allocator.
 */
static dsa_pointer spare = InvalidDsaPointer;
static Size spare_size = 0;

/* The entry that this backend keeps though it is empty. */
static TlKey kept_key;
static bool keeping = false;

/* This process ends, and keeps neither records nor entries any more. */
static bool leaving = false;

/* tl_token_now() and tl_token_about() under the present lock; 0: not read. */
static TlTime locked_at = 0;
static TlTime locked_about = 0;

static void sweep(void);
static void stop_keeping(const TlKey *key);
static void remove_lapsed(TlToken *token);
static Size record_size(int owner_len);

void
tl_token_init(void)
{
	tl_shmem_define_table(TL_TABLE_TOKENS, sizeof(TlToken), sweep);
}

TlToken *
tl_token_lock(const TlKey *key, bool create)
{
	TlToken    *token;
	bool		found = true;

	if (create)
		token = dshash_find_or_insert(tokens_table(), key, &found);
	else
		token = dshash_find(tokens_table(), key, true);
	if (token == NULL)
		return NULL;

	if (!found)
	{
		tl_shmem_count_entry(TL_TABLE_TOKENS, 1);
		token->queue_serial = 0;
		token->holders = InvalidDsaPointer;
		token->waiters = InvalidDsaPointer;
		token->nwaiters = 0;
		token->nsleepers = 0;
		token->head_procno = -1;
		token->kept_by = -1;
	}
	locked_at = locked_about = 0;
	remove_lapsed(token);
	return token;
}

TlTime
tl_token_now(void)
{
	if (locked_at == 0)
		locked_at = tl_now();
	return locked_at;
}

TlTime
tl_token_about(void)
{
	if (locked_at != 0)
		return locked_at;
	if (locked_about == 0)
		locked_about = tl_now_coarse();
	return locked_about;
}

static bool
is_empty(const TlToken *token)
{
	return !DsaPointerIsValid(token->holders) &&
		!DsaPointerIsValid(token->waiters);
}

void
tl_token_unlock(TlToken *token)
{
	TlKey		former;

	if (!is_empty(token) || token->kept_by >= 0)
	{
		dshash_release_lock(tokens_table(), token);
		return;
	}

	if (leaving)
	{
		dshash_delete_entry(tokens_table(), token);
		tl_shmem_count_entry(TL_TABLE_TOKENS, -1);
		return;
	}
	if (keeping)
		former = kept_key;
	token->kept_by = tl_my_procno();
	kept_key = token->key;
	dshash_release_lock(tokens_table(), token);

	if (keeping)
		stop_keeping(&former);
	keeping = true;
}

/* Remove an entry that this backend has kept, unless it is in use again. */
static void
stop_keeping(const TlKey *key)
{
	TlToken    *token = dshash_find(tokens_table(), key, true);

	if (token == NULL)
		return;
	if (token->kept_by == tl_my_procno())
		token->kept_by = -1;
	if (is_empty(token) && token->kept_by < 0)
	{
		dshash_delete_entry(tokens_table(), token);
		tl_shmem_count_entry(TL_TABLE_TOKENS, -1);
	}
	else
		dshash_release_lock(tokens_table(), token);
}

/* Remove what has lapsed.  That can be nothing where nobody holds or waits. */
static void
remove_lapsed(TlToken *token)
{
	tl_grant_remove_lapsed(token);
	tl_line_remove_lapsed(token);
}

void
tl_token_wake(TlToken *token)
{
	PGPROC	   *procs = ProcGlobal->allProcs;

	if (token->head_procno >= 0)
		SetLatch(&procs[token->head_procno].procLatch);
	if (token->nsleepers == 0)
		return;
	for (TlWaiter *waiter = tl_waiter_at(token->waiters);
		 waiter != NULL;
		 waiter = tl_waiter_at(waiter->next))
	{
		if (waiter->standing != TL_STANDING_GATE && waiter->procno >= 0)
			SetLatch(&procs[waiter->procno].procLatch);
	}
}

void
tl_token_visit(TlTokenVisitor visit, void *arg)
{
	TlTime		now = tl_now();
	dshash_seq_status status;
	TlToken    *token;

	dshash_seq_init(&status, tokens_table(), false);
	locked_at = now;
	while ((token = dshash_seq_next(&status)) != NULL)
		if (token->key.database == MyDatabaseId)
			visit(token, now, arg);
	dshash_seq_term(&status);
}

/*
 * Remove every lease and place that has lapsed and that nobody asked for
 * since.
 *
 * Called when memory is full, perhaps again and again, so it must be cheap
 * when there is nothing to gain.
 */
static void
sweep(void)
{
	TlTime		now = tl_now();
	TlTime		next = TL_NEVER;
	dshash_seq_status status;
	TlToken    *token;

	if (!tl_shmem_expiry_begin_sweep(now))
		return;
	dshash_seq_init(&status, tokens_table(), true);
	while ((token = dshash_seq_next(&status)) != NULL)
	{
		locked_at = now;
		remove_lapsed(token);
		for (TlHolder *holder = tl_holder_at(token->holders);
			 holder != NULL;
			 holder = tl_holder_at(holder->next))
			next = Min(next, holder->expires);
		for (TlWaiter *waiter = tl_waiter_at(token->waiters);
			 waiter != NULL;
			 waiter = tl_waiter_at(waiter->next))
			if (waiter->standing == TL_STANDING_PLACE)
				next = Min(next, waiter->deadline);
		if (is_empty(token) && token->kept_by < 0)
		{
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_TOKENS, -1);
		}
	}
	dshash_seq_term(&status);
	tl_shmem_expiry_note(next);
}

/*
 * Callable at commit, so it neither allocates nor raises errors.  Nobody is
 * connected to the database, or else the sessions in it find their tokens
 * gone, which is no worse than a lease that lapsed.
 */
int
tl_token_purge(Oid database, TlKick *kicks, int max)
{
	dshash_seq_status status;
	TlToken    *token;
	int			n = 0;

	dshash_seq_init(&status, tokens_table(), true);
	while (n < max && (token = dshash_seq_next(&status)) != NULL)
	{
		TlHolder   *first;
		TlHolder   *next;
		TlWaiter   *head;

		if (token->key.database != database)
			continue;
		first = tl_holder_at(token->holders);
		head = token->head_procno < 0 ? NULL :
			tl_line_waiter_of(token, token->head_procno);
		if (head && first && first->hold_serial != 0)
		{
			head->kicked = true;
			kicks[n].key = token->key;
			kicks[n].procno = token->head_procno;
			kicks[n].hold_serial = first->hold_serial;
			n++;
		}
		for (TlHolder *holder = first; holder != NULL; holder = next)
		{
			next = tl_holder_at(holder->next);
			tl_grant_purge(token, holder);
		}
		tl_line_remove_places(token);
		if (is_empty(token))
		{
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_TOKENS, -1);
		}
	}
	dshash_seq_term(&status);
	return n;
}

/*
 * Records
 */

static Size
record_size(int owner_len)
{
	return Max(offsetof(TlHolder, owner), offsetof(TlWaiter, owner)) +
		Max(owner_len, TL_USUAL_OWNER_LEN);
}

bool
tl_token_prepare(int owner_len, bool must)
{
	Size		size = record_size(owner_len);
	dsa_pointer record;

	if (tl_token_has_record(owner_len))
		return true;
	tl_token_discard_spare();
	record = must ? tl_shmem_alloc_or_error(size) : tl_shmem_alloc(size);
	/* a sweep may have set another one aside */
	tl_token_discard_spare();
	spare = record;
	spare_size = size;
	return DsaPointerIsValid(spare);
}

bool
tl_token_has_record(int owner_len)
{
	return DsaPointerIsValid(spare) && spare_size == record_size(owner_len);
}

dsa_pointer
tl_token_take_record(int owner_len)
{
	dsa_pointer record = spare;

	Assert(tl_token_has_record(owner_len));
	spare = InvalidDsaPointer;
	return record;
}

void
tl_token_give_record(dsa_pointer record, int owner_len)
{
	if (DsaPointerIsValid(spare) || leaving)
		tl_shmem_free(record, record_size(owner_len));
	else
	{
		spare = record;
		spare_size = record_size(owner_len);
	}
}

void
tl_token_discard_spare(void)
{
	if (DsaPointerIsValid(spare))
		tl_shmem_free(spare, spare_size);
	spare = InvalidDsaPointer;
}

void
tl_token_discard(void)
{
	leaving = true;
	tl_token_discard_spare();
	if (keeping)
		stop_keeping(&kept_key);
	keeping = false;
}
