/*-------------------------------------------------------------------------
 *
 * gate.c
 *	  The locks of the gate: queue locks and hold locks (wait.c says what for).
 *
 * Hold locks are held at session level, transaction scope's too.  Queue locks
 * are wait.c's own business.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "gate.h"
#include "line.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"

/*
 * A hold lock that is kept for the next grant: nobody else has ever learned of
 * its key, so it is in nobody's way.  The lock is kept to the end of the
 * transaction, so that one which takes many tokens in turn asks the lock
 * manager once, and the key for longer: a new one each time would land in
 * other parts of the lock manager's hash tables, where nothing is in the
 * processor's cache.
 */
static uint64 spare_serial = 0; /* 0: none */
static bool spare_taken = false;

void
tl_gate_tag(LOCKTAG *tag, uint64 serial, uint16 class)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (serial >> 32),
						 (uint32) serial, class);
}

static bool
take_hold(uint64 serial)
{
	LOCKTAG		tag;

	tl_gate_tag(&tag, serial, TL_CLASS_HOLD);
	return LockAcquire(&tag, ExclusiveLock, true, true) !=
		LOCKACQUIRE_NOT_AVAIL;
}

uint64
tl_gate_take_hold(void)
{
	uint64		serial = spare_serial;
	bool		taken = spare_taken;

	spare_serial = 0;
	spare_taken = false;
	/* pg_advisory_unlock_all() may have released it meanwhile */
	if (serial != 0 &&
		((taken && tl_gate_has_hold(serial)) || take_hold(serial)))
		return serial;
	serial = tl_shmem_next_serial();
	if (!take_hold(serial))
		elog(ERROR, "hold lock " UINT64_FORMAT " is in use", serial);
	return serial;
}

bool
tl_gate_has_hold(uint64 serial)
{
	LOCKTAG		tag;

	tl_gate_tag(&tag, serial, TL_CLASS_HOLD);
	return tl_lock_held_by_me(&tag, ExclusiveLock);
}

void
tl_gate_drop_hold(uint64 serial)
{
	LOCKTAG		tag;

	if (serial == 0)
		return;
	tl_gate_tag(&tag, serial, TL_CLASS_HOLD);
	/* pg_advisory_unlock_all() may have been quicker; no warning then */
	if (tl_lock_held_by_me(&tag, ExclusiveLock))
		LockRelease(&tag, ExclusiveLock, true);
}

void
tl_gate_spare_hold(uint64 serial)
{
	if (spare_serial != 0)
		tl_gate_drop_hold(serial);
	else
	{
		spare_serial = serial;
		spare_taken = true;
	}
}

void
tl_gate_drop_spare(void)
{
	if (spare_taken)
		tl_gate_drop_hold(spare_serial);
	spare_taken = false;
}

/*
 * Get a waiter out of the queue of one of our locks: its owner got the token
 * by another session, or the holder that it waits for was broken.  It was
 * marked under the token's lock.
 *
 * No latch reaches a process that sleeps in the lock manager.  But one may
 * take it off the lock's queue, as the deadlock detector does for its own
 * process.  It then gets the error of a deadlock, and knows from the mark
 * that it was none.  It may not have got as far as the queue yet: try again
 * until it has taken the mark or left the line.  Not for ever, though, as it
 * may have been stopped right there: who waits for a hold lock looks from time
 * to time by itself, and in the queue everybody's turn comes.
 */
void
tl_gate_kick(const TlKey *key, int procno, uint64 serial, uint16 class)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[procno];
	LOCKTAG		tag;
	uint32		hash;
	LWLock	   *partition_lock;

	tl_gate_tag(&tag, serial, class);
	hash = LockTagHashCode(&tag);
	partition_lock = LockHashPartitionLock(hash);

	for (int tries = 0; tries < 10000; tries++)
	{
		TlToken    *token = tl_token_lock(key, false);
		TlWaiter   *waiter = token ? tl_line_waiter_of(token, procno) : NULL;
		bool		gone = waiter == NULL || !waiter->kicked;
		LOCK	   *lock;

		if (token)
			tl_token_unlock(token);
		if (gone)
			return;

		LWLockAcquire(partition_lock, LW_EXCLUSIVE);
		/* it changes under our eyes unless it is a lock of this partition */
		lock = *(LOCK *volatile *) &proc->waitLock;
		if (lock != NULL && memcmp(&lock->tag, &tag, sizeof(tag)) == 0 &&
			proc->waitLock == lock &&
			proc->waitStatus == PROC_WAIT_STATUS_WAITING)
		{
			RemoveFromWaitQueue(proc, hash);
			SetLatch(&proc->procLatch);
			gone = true;
		}
		LWLockRelease(partition_lock);
		if (gone)
			return;
		pg_usleep(100);
	}
}
