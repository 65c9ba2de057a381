/*-------------------------------------------------------------------------
 *
 * token.c
 *	  Named tokens in shared memory: who holds them, who waits for them, and
 *	  when a request is granted.
 *
 * The holders in an entry are the truth about a token.  The locks of wait.c
 * only serve to queue and to be seen by the deadlock detector: what they say
 * may lag behind, and the user can drop them behind our back.
 *
 * Whoever removes a holder, shortens a lease or gives a holder a hold lock
 * wakes the head of the line before the entry is unlocked, because the head
 * decides for itself what to do and has no other way to learn of it.
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
#include "fence.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "token.h"

/* Owner names up to this length fit into the usual record. */
#define TL_USUAL_OWNER_LEN	24

#define tokens_table()	tl_shmem_table(TL_TABLE_TOKENS)
#define holder_at(p)	((TlHolder *) tl_shmem_address(p))
#define waiter_at(p)	((TlWaiter *) tl_shmem_address(p))

/*
 * One record set aside, so that a get and put in turn need not go to the
 * allocator.
 */
static dsa_pointer spare = InvalidDsaPointer;
static Size spare_size = 0;

/* The entry that this backend keeps though it is empty. */
static TlKey kept_key;
static bool keeping = false;

/* tl_token_now() under the present lock; 0: not read yet. */
static TlTime locked_at = 0;

static void sweep_lapsed(void);
static void stop_keeping(const TlKey *key);
static void remove_lapsed(TlToken *token);
static void wake_head(TlToken *token);
static void discard_spare(void);
static Size record_size(int owner_len);
static dsa_pointer take_spare(Size size);
static void give_record(dsa_pointer record, Size size);

void
tl_token_init(void)
{
	tl_shmem_define_table(TL_TABLE_TOKENS, sizeof(TlToken), sweep_lapsed);
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
		token->head_procno = -1;
		token->kept_by = -1;
	}
	locked_at = 0;
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

/* Is this the grant of that owner? */
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
tl_token_holder_of(TlToken *token, const TlOwner *owner, uint64 fence)
{
	for (dsa_pointer p = token->holders; DsaPointerIsValid(p);)
	{
		TlHolder   *holder = holder_at(p);

		if (is_owner(holder, owner))
			return fence == 0 || holder->fence == fence ? holder : NULL;
		p = holder->next;
	}
	return NULL;
}

TlHolder *
tl_token_lease_of_role(TlToken *token, Oid role, uint64 fence)
{
	for (dsa_pointer p = token->holders; DsaPointerIsValid(p);)
	{
		TlHolder   *holder = holder_at(p);

		if (holder->scope == TL_SCOPE_OWNER && holder->role == role &&
			holder->fence == fence)
			return holder;
		p = holder->next;
	}
	return NULL;
}

TlHolder *
tl_token_first_holder(TlToken *token)
{
	return DsaPointerIsValid(token->holders) ? holder_at(token->holders) : NULL;
}

static bool
is_free(const TlToken *token, bool head)
{
	return !DsaPointerIsValid(token->holders) &&
		(head || token->nwaiters == 0);
}

TlAnswer
tl_token_try(TlToken *token, TlRequest *request, bool head,
			 uint64 hold_serial, bool *fence_missing)
{
	const TlOwner *owner = &request->owner;
	TlHolder   *holder = tl_token_holder_of(token, owner, 0);
	TlGrant    *grant = &request->grant;
	TlTime		ttl = request->ttl;
	dsa_pointer record;
	uint64		fence;

	*fence_missing = false;
	memset(grant, 0, sizeof(*grant));
	if (holder)
	{
		/* asking for the longer scope lengthens the hold */
		if (request->scope > holder->scope)
			holder->scope = request->scope;
		tl_token_restart(token, holder, request->ttl, grant);
		return TL_ANSWER_AGAIN;
	}
	if (!is_free(token, head))
		return TL_ANSWER_BUSY;

	/* a named owner may outlive its session, so its grant must have an end */
	if (ttl == 0 && owner->named)
		ttl = (TlTime) tl_default_ttl * 1000;

	/* drawn under the lock, or a later grant could get the smaller number */
	fence = tl_fence_draw();
	if (fence == 0)
	{
		*fence_missing = true;
		return TL_ANSWER_BUSY;
	}

	record = take_spare(record_size(owner->len));
	holder = holder_at(record);
	holder->next = token->holders;
	holder->fence = fence;
	holder->hold_serial = hold_serial;
	holder->ttl = ttl;
	holder->acquired = tl_token_now();
	holder->expires = ttl == 0 ? TL_NEVER :
		tl_time_add(holder->acquired, ttl);
	holder->role = owner->role;
	holder->procno = owner->procno;
	holder->pid = owner->pid;
	holder->scope = request->scope;
	holder->owner_len = owner->len;
	memcpy(holder->owner, owner->name, owner->len);
	token->holders = record;
	tl_shmem_expiry_note(holder->expires);

	grant->fence = fence;
	grant->expires = holder->expires;
	grant->hold_serial = hold_serial;
	return TL_ANSWER_NEW;
}

void
tl_token_look(TlToken *token, const TlRequest *request, bool head,
			  TlLook *look)
{
	TlHolder   *holder = tl_token_first_holder(token);

	look->mine = tl_token_holder_of(token, &request->owner, 0) != NULL;
	look->free = is_free(token, head);
	look->hold_serial = holder ? holder->hold_serial : 0;
	look->next_change = holder ? holder->expires : TL_NEVER;
}

void
tl_token_restart(TlToken *token, TlHolder *holder, TlTime ttl,
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
			wake_head(token);
	}
	grant->fence = holder->fence;
	grant->expires = holder->expires;
	grant->hold_serial = holder->hold_serial;
}

void
tl_token_remove_holder(TlToken *token, TlHolder *holder)
{
	dsa_pointer *link = &token->holders;
	dsa_pointer removed;

	while (holder_at(*link) != holder)
		link = &holder_at(*link)->next;
	removed = *link;
	*link = holder->next;
	give_record(removed, record_size(holder->owner_len));
	wake_head(token);
}

void
tl_token_set_hold(TlToken *token, TlHolder *holder, uint64 serial)
{
	holder->hold_serial = serial;
	wake_head(token);
}

void
tl_token_add_waiter(TlToken *token, const TlRequest *request, TlTime deadline)
{
	const TlOwner *owner = &request->owner;
	dsa_pointer record = take_spare(record_size(owner->len));
	TlWaiter   *waiter = waiter_at(record);
	dsa_pointer *link = &token->waiters;

	waiter->next = InvalidDsaPointer;
	waiter->since = tl_token_now();
	waiter->deadline = deadline;
	waiter->role = owner->role;
	waiter->procno = owner->procno;
	waiter->pid = owner->pid;
	waiter->kicked = false;
	waiter->owner_len = owner->len;
	memcpy(waiter->owner, owner->name, owner->len);

	while (DsaPointerIsValid(*link))
		link = &waiter_at(*link)->next;
	*link = record;
	token->nwaiters++;
	if (token->queue_serial == 0)
		token->queue_serial = tl_shmem_next_serial();
}

void
tl_token_remove_waiter(TlToken *token, int procno)
{
	dsa_pointer *link = &token->waiters;

	while (DsaPointerIsValid(*link))
	{
		TlWaiter   *waiter = waiter_at(*link);
		dsa_pointer removed = *link;

		if (waiter->procno == procno)
		{
			*link = waiter->next;
			give_record(removed, record_size(waiter->owner_len));
			token->nwaiters--;
			break;
		}
		link = &waiter->next;
	}
	if (token->head_procno == procno)
		token->head_procno = -1;
	else
		wake_head(token);
}

TlWaiter *
tl_token_waiter_of(TlToken *token, int procno)
{
	for (dsa_pointer p = token->waiters; DsaPointerIsValid(p);)
	{
		TlWaiter   *waiter = waiter_at(p);

		if (waiter->procno == procno)
			return waiter;
		p = waiter->next;
	}
	return NULL;
}

void
tl_token_set_head(TlToken *token, int procno)
{
	token->head_procno = procno;
}

int
tl_token_kick_same_owner(TlToken *token, const TlOwner *owner,
						 int *procnos, int max)
{
	int			n = 0;

	if (!owner->named)
		return 0;
	for (dsa_pointer p = token->waiters; DsaPointerIsValid(p) && n < max;)
	{
		TlWaiter   *waiter = waiter_at(p);

		if (waiter->procno != owner->procno && waiter->role == owner->role &&
			waiter->owner_len == owner->len &&
			memcmp(waiter->owner, owner->name, owner->len) == 0)
		{
			waiter->kicked = true;
			procnos[n++] = waiter->procno;
		}
		p = waiter->next;
	}
	return n;
}

void
tl_token_visit(TlTokenVisitor visit, void *arg)
{
	TlTime		now = tl_now();
	dshash_seq_status status;
	TlToken    *token;

	dshash_seq_init(&status, tokens_table(), false);
	while ((token = dshash_seq_next(&status)) != NULL)
		if (token->key.database == MyDatabaseId)
			visit(token, now, arg);
	dshash_seq_term(&status);
}

/*
 * Remove every lease that has lapsed and that nobody asked for since.
 *
 * Called when memory is full, perhaps again and again, so it must be cheap
 * when there is nothing to gain.
 */
static void
sweep_lapsed(void)
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
		for (dsa_pointer p = token->holders; DsaPointerIsValid(p);)
		{
			next = Min(next, holder_at(p)->expires);
			p = holder_at(p)->next;
		}
		if (is_empty(token) && token->kept_by < 0)
		{
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_TOKENS, -1);
		}
	}
	dshash_seq_term(&status);
	tl_shmem_expiry_note(next);
}

/* Does not ask for the time where nothing can lapse. */
static void
remove_lapsed(TlToken *token)
{
	dsa_pointer p = token->holders;

	while (DsaPointerIsValid(p))
	{
		TlHolder   *holder = holder_at(p);

		p = holder->next;
		if (holder->expires != TL_NEVER && holder->expires <= tl_token_now())
			tl_token_remove_holder(token, holder);
	}
}

static void
wake_head(TlToken *token)
{
	if (token->head_procno >= 0)
		SetLatch(&ProcGlobal->allProcs[token->head_procno].procLatch);
}

/* A holder and a waiter of one owner take turns in a record of one size. */
static Size
record_size(int owner_len)
{
	return Max(offsetof(TlHolder, owner), offsetof(TlWaiter, owner)) +
		Max(owner_len, TL_USUAL_OWNER_LEN);
}

void
tl_token_prepare(const TlOwner *owner)
{
	Size		size = record_size(owner->len);

	if (DsaPointerIsValid(spare) && spare_size == size)
		return;
	discard_spare();
	spare = tl_shmem_alloc_or_error(size);
	spare_size = size;
}

static void
discard_spare(void)
{
	if (DsaPointerIsValid(spare))
		tl_shmem_free(spare, spare_size);
	spare = InvalidDsaPointer;
}

void
tl_token_discard(void)
{
	discard_spare();
	if (keeping)
		stop_keeping(&kept_key);
	keeping = false;
}

static dsa_pointer
take_spare(Size size)
{
	dsa_pointer record = spare;

	Assert(DsaPointerIsValid(spare) && spare_size == size);
	spare = InvalidDsaPointer;
	return record;
}

static void
give_record(dsa_pointer record, Size size)
{
	if (DsaPointerIsValid(spare))
		tl_shmem_free(record, size);
	else
	{
		spare = record;
		spare_size = size;
	}
}
