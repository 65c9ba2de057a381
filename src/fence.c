/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Fence numbers: drawn in shared memory, reserved durably in blocks.
 *
 * A fence must be larger than every earlier one of its name, across crashes
 * and failovers too, and must not cost a write per grant.  So the numbers of
 * a database come out of blocks.  The end of the last block is kept on the
 * page of the sequence tokenlock_fence.  It is moved ahead and flushed first,
 * and then the numbers below it are given out; after a start it is where the
 * next block begins.
 *
 * The page is changed in place by generic WAL rather than by setval(), which
 * fails in read-only transactions, assigns a transaction id and is undone by
 * nothing but needs a right that would let its owner set the number back.
 *
 * A standby that is promoted may lack the last reservation, and so may a
 * server restored from a backup.  Therefore a number consists of a counter of
 * 44 bits and, above it, an epoch.  Beside the end of the block, in the
 * sequence's log_cnt, stands the server's history: its timeline and, above
 * that, a hash of its system identifier.  When it is not today's, the epoch is
 * raised: by one for each timeline that has begun since, as those between may
 * have raised it, too, which a standby that was cut off has not heard of.
 * pg_dump carries the number, but not the history: a restored database begins
 * a new epoch, too.
 *
 * A new extension's numbers begin at a clock reading (seconds since 2026 in
 * the upper bits), so that they go on growing when the extension is dropped
 * and created again.  An epoch for each timeline before this one makes up for
 * those that its predecessor's numbers were raised by.
 *
 * Locks: while reserving, a lock on the sequence and its buffer, and
 * afterwards the spinlock of TlDatabase.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "access/generic_xlog.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "database.h"
#include "fence.h"
#include "page.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* Bits of the counter below the epoch. */
#define TL_EPOCH_SHIFT		44

/* Numbers reserved at a time: a crash loses at most so many. */
#define TL_FENCE_BLOCK		((uint64) 1 << 22)

/* The first number of a new extension: seconds since then, shifted. */
#define TL_SEED_SINCE		INT64CONST(1767225600)	/* 2026-01-01 UTC */
#define TL_SEED_SHIFT		23

static void reserve(TlDatabase *database);
static uint64 reserve_on_page(Relation sequence, uint64 *start);
static uint64 epochs_since(int64 then, int64 now);
static uint64 seed(void);

void
tl_fence_prepare(void)
{
	TlDatabase *database = tl_database();

	if (unlikely(pg_atomic_read_u64(&database->next_fence) >=
				 pg_atomic_read_u64(&database->fence_limit)))
		reserve(database);
}

uint64
tl_fence_draw(void)
{
	TlDatabase *database = tl_database();
	uint64		fence = pg_atomic_fetch_add_u64(&database->next_fence, 1);

	return fence < pg_atomic_read_u64(&database->fence_limit) ? fence : 0;
}

/*
 * Reserve a block: on disk first, and only then in shared memory.
 *
 * Several backends may do so at once.  Each gets a block of its own, in the
 * order in which they had the buffer, and a flush covers what was logged
 * before; so the larger limit is good for all numbers below it.
 *
 * When the extension was dropped and created again, the sequence is new, and
 * shared memory may know larger numbers than it.
 */
static void
reserve(TlDatabase *database)
{
	Relation	relation;
	uint64		start;
	uint64		end;

	/* Numbers may be in use that a new sequence knows nothing of. */
	start = pg_atomic_read_u64(&database->fence_limit);

	relation = tl_page_open(TL_FENCE_SEQUENCE, RowExclusiveLock);
	end = reserve_on_page(relation, &start);
	relation_close(relation, RowExclusiveLock);

	SpinLockAcquire(&database->mutex);
	if (pg_atomic_read_u64(&database->fence_limit) == 0)
		pg_atomic_write_u64(&database->next_fence, start);
	if (pg_atomic_read_u64(&database->fence_limit) < end)
	{
		pg_write_barrier();
		pg_atomic_write_u64(&database->fence_limit, end);
	}
	SpinLockRelease(&database->mutex);
}

/*
 * Move the end of the reserved numbers ahead on the sequence's page, and
 * flush.  The block begins at *start or above, which is set.
 */
static uint64
reserve_on_page(Relation sequence, uint64 *start)
{
	GenericXLogState *state = GenericXLogStart(sequence);
	int64		history = tl_fence_history();
	Buffer		buffer = ReadBuffer(sequence, 0);
	XLogRecPtr	lsn;
	Page		page;
	HeapTupleData tuple;
	Form_pg_sequence_data data;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	tuple.t_data = (HeapTupleHeader)
		PageGetItem(page, PageGetItemId(page, FirstOffsetNumber));
	data = (Form_pg_sequence_data) GETSTRUCT(&tuple);

	if (!data->is_called)
		*start = Max(*start, seed());
	else if (data->log_cnt == history)
		*start = Max(*start, (uint64) data->last_value);
	else
		*start = Max(*start,
					 (((uint64) data->last_value >> TL_EPOCH_SHIFT) +
					  epochs_since(data->log_cnt, history))
					 << TL_EPOCH_SHIFT);

	data->last_value = *start + TL_FENCE_BLOCK;
	data->log_cnt = history;
	data->is_called = true;

	lsn = GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
	XLogFlush(lsn);
	return *start + TL_FENCE_BLOCK;
}

int64
tl_fence_history(void)
{
	uint32		server = hash_bytes_uint32((uint32) GetSystemIdentifier() ^
										   (uint32) (GetSystemIdentifier() >> 32));

	return (int64) (server & PG_INT32_MAX) << 32 | GetWALInsertionTimeLine();
}

/* By how much the history's change raises the epoch. */
static uint64
epochs_since(int64 then, int64 now)
{
	bool		same_server = then >> 32 == now >> 32;

	return same_server && now > then ? (uint64) (now - then) : 1;
}

static uint64
seed(void)
{
	int64		seconds = (int64) time(NULL) - TL_SEED_SINCE;

	return ((uint64) Max(seconds, 1) << TL_SEED_SHIFT) +
		((uint64) (GetWALInsertionTimeLine() - 1) << TL_EPOCH_SHIFT);
}
