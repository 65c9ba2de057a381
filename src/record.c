/*-------------------------------------------------------------------------
 *
 * record.c
 *	  Long leases: recorded durably, so that they survive with their holder.
 *
 * A lease longer than tokenlock.grace has a record on disk, in a slot of a
 * page (page.c).  What is answered about it is on disk before: the grant, each
 * new end, and that it is no more.
 *
 * While a slot is being written its holder is marked ("writing"); whoever
 * wants to write it, too, waits for that mark to go.  A holder is not removed
 * before its record is: when it was put or broken, or has lapsed, it becomes
 * a remnant.  That is nobody's and in nobody's way, but who wants the token
 * next must remove it first.  So nobody is granted while a record on disk says
 * that somebody else has the token.
 *
 * Putting a lease can therefore be done in memory alone where the disk must
 * not be waited for (at an abort); otherwise it removes the remnant at once.
 * Those that nobody asks for are collected from time to time.
 *
 * Locks: one token's at a time, none while the disk is waited for; a lock on
 * the sequence tokenlock_lease that only keeps it from being dropped.
 * Interrupts are held off while the mark is set.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "clock.h"
#include "compat.h"
#include "grant.h"
#include "miscadmin.h"
#include "promise.h"
#include "record.h"
#include "replication/syncrep.h"
#include "storage/lockdefs.h"

/* How often remnants are collected, and how many at a time. */
#define TL_COLLECT_PAUSE	(INT64CONST(60) * 1000 * 1000)
#define TL_COLLECT_MAX		64

#define TL_WORDS			(TL_RECORDS_MAX / 32)

/* Which slots are in use: a bit each. */
typedef struct TlSlots
{
	pg_atomic_uint64 collect_next;	/* TlTime */
	pg_atomic_uint32 first;		/* the words before this one are full, or so */
	pg_atomic_uint32 words[TL_WORDS];
} TlSlots;

/* A slot that is being written. */
typedef struct TlWriting
{
	TlKey		key;
	uint64		fence;
	int			slot;
	TlRecord	record;
} TlWriting;

/* What has become of it. */
typedef enum TlWritten
{
	TL_WRITTEN_FAILED,			/* perhaps written, perhaps not */
	TL_WRITTEN_RECORD,			/* the record is on disk */
	TL_WRITTEN_NOTHING			/* the slot is empty on disk */
} TlWritten;

static TlSlots *slots_of(TlDatabase *database);
static void free_slot(int slot);
static void begin(TlWriting *writing, const TlKey *key, TlHolder *holder);
static void write_and_flush(Relation sequence, int slot,
							const TlRecord *record);
static void flush(XLogRecPtr lsn);
static bool finish(const TlWriting *writing, TlWritten written,
				   TlTime ttl, TlGrant *grant);
static void collect(void);

/*
 * Slots
 */

static TlSlots *
slots_of(TlDatabase *database)
{
	return (TlSlots *) tl_shmem_address(database->slots);
}

static void
make_slots(TlDatabase *database)
{
	dsa_pointer made;
	TlSlots    *slots;

	if (likely(DsaPointerIsValid(database->slots)))
		return;
	made = tl_shmem_alloc_or_error(sizeof(TlSlots));
	slots = (TlSlots *) tl_shmem_address(made);
	pg_atomic_init_u64(&slots->collect_next, 0);
	pg_atomic_init_u32(&slots->first, 0);
	for (int i = 0; i < TL_WORDS; i++)
		pg_atomic_init_u32(&slots->words[i], 0);

	SpinLockAcquire(&database->mutex);
	if (!DsaPointerIsValid(database->slots))
	{
		database->slots = made;
		made = InvalidDsaPointer;
	}
	SpinLockRelease(&database->mutex);
	if (DsaPointerIsValid(made))
		tl_shmem_free(made, sizeof(TlSlots));
}

int32
tl_record_take_slot(void)
{
	TlSlots    *slots = slots_of(tl_database());

	uint32		first = pg_atomic_read_u32(&slots->first);

	for (uint32 n = 0; n < TL_WORDS; n++)
	{
		uint32		i = (first + n) % TL_WORDS;
		uint32		word = pg_atomic_read_u32(&slots->words[i]);

		for (int bit = 0; bit < 32 && word != PG_UINT32_MAX; bit++)
		{
			uint32		mask = (uint32) 1 << bit;

			if (word & mask)
				continue;
			word = pg_atomic_fetch_or_u32(&slots->words[i], mask);
			if ((word & mask) == 0)
			{
				if (i != first)
					pg_atomic_write_u32(&slots->first, i);
				return (int32) i * 32 + bit + 1;
			}
		}
	}
	return 0;
}

static void
free_slot(int slot)
{
	TlSlots    *slots = slots_of(tl_database());

	pg_atomic_fetch_and_u32(&slots->words[slot / 32],
							~((uint32) 1 << (slot % 32)));
	/* low slots are used first, so that few pages are needed */
	if ((uint32) slot / 32 < pg_atomic_read_u32(&slots->first))
		pg_atomic_write_u32(&slots->first, slot / 32);
}

void
tl_record_error_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many long leases"),
			 errdetail("A database can have %d leases that are longer than \"tokenlock.grace\".",
					   TL_RECORDS_MAX),
			 errhint("Give back those that are no longer needed, or ask for a shorter ttl and renew it.")));
	pg_unreachable();
}

void
tl_record_forget(TlDatabase *database)
{
	TlSlots    *slots;

	if (!DsaPointerIsValid(database->slots))
		return;
	slots = slots_of(database);
	for (int i = 0; i < TL_WORDS; i++)
		pg_atomic_write_u32(&slots->words[i], 0);
}

void
tl_record_free(TlDatabase *database)
{
	if (DsaPointerIsValid(database->slots))
		tl_shmem_free(database->slots, sizeof(TlSlots));
	database->slots = InvalidDsaPointer;
}

/*
 * Writing
 */

static Relation
open_pages(void)
{
	make_slots(tl_database());
	return tl_page_open(TL_LEASE_SEQUENCE, RowExclusiveLock);
}

Relation
tl_record_open(void)
{
	make_slots(tl_database());
	tl_record_collect();
	return open_pages();
}

/*
 * Mark a holder as being written, and note what there is to write.  Its
 * token's lock is held.
 */
static void
begin(TlWriting *writing, const TlKey *key, TlHolder *holder)
{
	TlRecord   *record = &writing->record;

	holder->writing = true;
	writing->key = *key;
	writing->fence = holder->fence;
	writing->slot = holder->record - 1;

	memset(record, 0, sizeof(*record));
	record->fence = holder->fence;
	record->boot = tl_boot();
	record->acquired = holder->acquired;
	record->ttl = holder->ttl;
	record->expires = holder->expires;
	record->role = holder->role;
	record->capacity = holder->capacity;
	record->name_len = key->len;
	memcpy(record->name, key->name, key->len);
	record->owner_len = holder->owner_len;
	memcpy(record->owner, holder->owner, holder->owner_len);
}

/* Wait for the disk, and for a synchronous standby as a commit does. */
static void
flush(XLogRecPtr lsn)
{
	XLogFlush(lsn);
	SyncRepWaitForLSN(lsn, true);
}

static void
write_and_flush(Relation sequence, int slot, const TlRecord *record)
{
	Assert(InterruptHoldoffCount > 0);
	flush(tl_page_write_record(sequence, slot, record));
}

/* Set the end of a record that is to be written. */
static void
set_end(TlRecord *record, TlTime ttl, TlTime expires)
{
	record->ttl = ttl;
	record->expires = expires;
	record->wall_expires = expires == TL_NEVER ? 0 :
		GetCurrentTimestamp() + (expires - tl_now());
}

/*
 * Take the mark off a holder, and make of it what was written.  With a ttl,
 * that is what its lease was restarted for, which succeeds if it has neither
 * ended nor lapsed meanwhile.
 */
static bool
finish(const TlWriting *writing, TlWritten written, TlTime ttl,
	   TlGrant *grant)
{
	TlDatabase *database = tl_database();
	TlToken    *token = tl_token_lock(&writing->key, false);
	TlHolder   *holder;
	bool		live = false;

	if (token)
	{
		holder = tl_grant_with(token, writing->fence);
		if (holder)
		{
			holder->writing = false;
			if (written == TL_WRITTEN_NOTHING)
			{
				holder->record = 0;
				free_slot(writing->slot);
			}
			live = tl_grant_live(token, writing->fence) == holder;
			if (live && written != TL_WRITTEN_FAILED)
			{
				holder->recorded = written == TL_WRITTEN_RECORD;
				if (ttl != 0)
					tl_grant_set_end(token, holder, ttl,
									 writing->record.expires, grant);
			}
			tl_grant_settle(token, holder);
		}
		tl_token_unlock(token);
	}
	ConditionVariableBroadcast(&database->record_written);
	return live;
}

void
tl_record_granted(Relation sequence, const TlKey *key, uint64 fence)
{
	TlWriting	writing;
	TlToken    *token;
	TlHolder   *holder;

	HOLD_INTERRUPTS();
	token = tl_token_lock(key, false);
	holder = token ? tl_grant_with(token, fence) : NULL;
	if (holder)
		begin(&writing, key, holder);
	if (token)
		tl_token_unlock(token);
	/* gone only when the extension is dropped under our feet */
	if (holder)
	{
		set_end(&writing.record, writing.record.ttl, writing.record.expires);
		PG_TRY();
		{
			write_and_flush(sequence, writing.slot, &writing.record);
		}
		PG_CATCH();
		{
			token = tl_token_lock(key, false);
			holder = token ? tl_grant_with(token, fence) : NULL;
			if (holder && !holder->ended)
				tl_grant_end(token, holder, TL_EVENT_PUT);
			if (token)
				tl_token_unlock(token);
			finish(&writing, TL_WRITTEN_FAILED, 0, NULL);
			PG_RE_THROW();
		}
		PG_END_TRY();
		finish(&writing, TL_WRITTEN_RECORD, 0, NULL);
	}
	RESUME_INTERRUPTS();
}

void
tl_record_wait(const TlKey *key, uint64 fence)
{
	ConditionVariable *written = &tl_database()->record_written;

	ConditionVariablePrepareToSleep(written);
	for (;;)
	{
		TlToken    *token = tl_token_lock(key, false);
		TlHolder   *holder = token ? tl_grant_with(token, fence) : NULL;
		bool		busy = holder && holder->writing;

		if (token)
			tl_token_unlock(token);
		if (!busy)
			break;
		ConditionVariableSleep(written, tl_wait_event());
	}
	ConditionVariableCancelSleep();
}

bool
tl_record_restart(const TlKey *key, uint64 fence, TlTime ttl, TlGrant *grant)
{
	Relation	sequence = tl_record_open();
	TlWriting	writing;
	TlTime		lasts;
	TlTime		expires = 0;
	bool		is_long;
	bool		done;

	for (;;)
	{
		TlToken    *token = tl_token_lock(key, false);
		TlHolder   *holder = token ? tl_grant_live(token, fence) : NULL;
		bool		covered = true;
		bool		full = false;
		bool		busy = false;

		if (!holder)
		{
			if (token)
				tl_token_unlock(token);
			relation_close(sequence, RowExclusiveLock);
			return false;
		}
		lasts = ttl != 0 ? ttl : holder->ttl;
		is_long = tl_promise_too_long(lasts);
		busy = holder->writing;
		if (!busy && !is_long)
			covered = tl_promise_covers(lasts, tl_token_now());
		if (!busy && covered && holder->record == 0)
		{
			holder->record = tl_record_take_slot();
			full = holder->record == 0;
		}
		if (!busy && covered && !full)
		{
			begin(&writing, key, holder);
			expires = tl_time_add(tl_token_now(), lasts);
			HOLD_INTERRUPTS();
		}
		tl_token_unlock(token);
		if (full)
			tl_record_error_full();
		if (busy)
			tl_record_wait(key, fence);
		else if (!covered)
			tl_promise_reserve(lasts);
		else
			break;
	}

	set_end(&writing.record, lasts, expires);
	PG_TRY();
	{
		write_and_flush(sequence, writing.slot,
						is_long ? &writing.record : NULL);
	}
	PG_CATCH();
	{
		finish(&writing, TL_WRITTEN_FAILED, 0, NULL);
		PG_RE_THROW();
	}
	PG_END_TRY();
	done = finish(&writing,
				  is_long ? TL_WRITTEN_RECORD : TL_WRITTEN_NOTHING,
				  lasts, grant);
	RESUME_INTERRUPTS();
	relation_close(sequence, RowExclusiveLock);
	return done;
}

/*
 * Remnants
 */

/* Mark a remnant as being removed; false when there is nothing to remove. */
static bool
begin_clear(TlWriting *writing, const TlKey *key, uint64 fence)
{
	TlToken    *token = tl_token_lock(key, false);
	TlHolder   *holder = token ? tl_grant_with(token, fence) : NULL;
	bool		remnant = holder && tl_grant_is_remnant(holder);

	if (remnant)
	{
		begin(writing, key, holder);
		HOLD_INTERRUPTS();
	}
	if (token)
		tl_token_unlock(token);
	return remnant;
}

void
tl_record_clear(const TlKey *key, uint64 fence)
{
	Relation	sequence = open_pages();
	TlWriting	writing;

	tl_record_wait(key, fence);
	if (begin_clear(&writing, key, fence))
	{
		PG_TRY();
		{
			write_and_flush(sequence, writing.slot, NULL);
		}
		PG_CATCH();
		{
			finish(&writing, TL_WRITTEN_FAILED, 0, NULL);
			PG_RE_THROW();
		}
		PG_END_TRY();
		finish(&writing, TL_WRITTEN_NOTHING, 0, NULL);
		RESUME_INTERRUPTS();
	}
	relation_close(sequence, RowExclusiveLock);
}

void
tl_record_collect(void)
{
	TlDatabase *database = tl_database();
	TlTime		now = tl_now();
	TlSlots    *slots;
	uint64		next;

	if (!DsaPointerIsValid(database->slots))
		return;
	slots = slots_of(database);
	next = pg_atomic_read_u64(&slots->collect_next);
	if (now >= (TlTime) next &&
		pg_atomic_compare_exchange_u64(&slots->collect_next, &next,
									   now + TL_COLLECT_PAUSE))
		collect();
}

/* Keys of remnants, found by find_remnants. */
typedef struct TlRemnants
{
	int			n;
	struct
	{
		TlKey		key;
		uint64		fence;
	}			items[TL_COLLECT_MAX];
} TlRemnants;

static void
find_remnants(TlToken *token, TlTime now, void *arg)
{
	TlRemnants *found = arg;

	for (TlHolder *holder = tl_holder_at(token->holders);
		 holder != NULL && found->n < TL_COLLECT_MAX;
		 holder = tl_holder_at(holder->next))
	{
		/* one that has lapsed becomes a remnant when it is next locked */
		if (holder->record != 0 && holder->pins == 0 &&
			(holder->ended || holder->expires <= now))
		{
			found->items[found->n].key = token->key;
			found->items[found->n].fence = holder->fence;
			found->n++;
		}
	}
}

/* Remove remnants, with one wait for the disk for many of them. */
static void
collect(void)
{
	TlRemnants *found = palloc(sizeof(TlRemnants));
	TlWriting  *writing = palloc(TL_COLLECT_MAX * sizeof(TlWriting));
	volatile int n;

	do
	{
		Relation	sequence;

		found->n = 0;
		tl_token_visit(find_remnants, found);
		if (found->n == 0)
			break;
		sequence = open_pages();
		n = 0;
		PG_TRY();
		{
			XLogRecPtr	lsn = InvalidXLogRecPtr;

			for (int i = 0; i < found->n; i++)
			{
				if (!begin_clear(&writing[n], &found->items[i].key,
								 found->items[i].fence))
					continue;
				n++;
				lsn = tl_page_write_record(sequence, writing[n - 1].slot,
										   NULL);
			}
			if (n > 0)
				flush(lsn);
		}
		PG_CATCH();
		{
			while (n > 0)
				finish(&writing[--n], TL_WRITTEN_FAILED, 0, NULL);
			PG_RE_THROW();
		}
		PG_END_TRY();
		for (int i = 0; i < n; i++)
		{
			finish(&writing[i], TL_WRITTEN_NOTHING, 0, NULL);
			RESUME_INTERRUPTS();
		}
		relation_close(sequence, RowExclusiveLock);
	} while (n == TL_COLLECT_MAX);
	pfree(writing);
	pfree(found);
}

/*
 * After a start
 */

/*
 * When does a recorded lease end, by the clock of this boot?  Across a reboot
 * only the wall clock can tell; but it may be wrong, so the lease lasts no
 * longer than its ttl, and not less than the grace.
 */
static TlTime
end_of(const TlRecord *record, TlTime grace_until)
{
	TlTime		left;

	if (record->expires == TL_NEVER)
		return TL_NEVER;
	if (tl_boot_is(record->boot))
		return record->expires;
	left = record->wall_expires - GetCurrentTimestamp();
	left = Min(left, record->ttl);
	return Max(tl_now() + left, grace_until);
}

static void
load(TlDatabase *database, int slot, const TlRecord *record, TlTime expires)
{
	TlLease		lease;
	TlKey		key;

	make_slots(database);
	pg_atomic_fetch_or_u32(&slots_of(database)->words[slot / 32],
						   (uint32) 1 << (slot % 32));
	tl_key_init(&key, InvalidOid, record->name, record->name_len);
	lease.fence = record->fence;
	lease.ttl = record->ttl;
	lease.expires = expires;
	if (tl_boot_is(record->boot))
		lease.acquired = record->acquired;
	else
		lease.acquired = expires == TL_NEVER ? tl_now() :
			Min(expires - record->ttl, tl_now());
	lease.role = record->role;
	lease.capacity = record->capacity;
	lease.record = slot + 1;
	lease.owner_len = record->owner_len;
	memcpy(lease.owner, record->owner, record->owner_len);
	/* raises the error that says so when memory is full */
	tl_token_prepare(lease.owner_len, true);
	tl_shmem_make_room(TL_TABLE_TOKENS);
	if (!tl_grant_revive(&key, &lease))
		elog(ERROR, "could not restore a lease");
}

void
tl_record_load(TlDatabase *database, Relation sequence, TlTime grace_until)
{
	int			n = tl_page_records(sequence);
	XLogRecPtr	lsn = InvalidXLogRecPtr;
	TlRecord	record;

	for (int slot = 0; slot < n; slot++)
	{
		TlTime		expires;

		if (!tl_page_read_record(sequence, slot, &record))
			continue;
		expires = end_of(&record, grace_until);
		/* what has lapsed must not come back with the next start */
		if (expires <= tl_now())
			lsn = tl_page_write_record(sequence, slot, NULL);
		else
			load(database, slot, &record, expires);
	}
	if (lsn != InvalidXLogRecPtr)
		XLogFlush(lsn);
}
