/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  The gate: waiting in line for a token.
 *
 * A token's line is the wait queue of a PostgreSQL advisory lock, the queue
 * lock.  That gives its order, deadlock detection, lock_timeout and
 * pg_blocking_pids.  Each waiter asks for the queue lock, and who has it is
 * the head.  The head looks at the token.  When that is free, it takes it,
 * releases the queue lock, and the next one is the head.
 *
 * Otherwise the head sleeps, in one of two ways.  An untimed session or
 * transaction holder keeps a second lock, the hold lock of its grant: the
 * head waits for that one, so that the deadlock detector sees whom it waits
 * for.  Any other holder may outlive its session or end by the clock: there
 * the head sleeps on its latch, and whoever changes the token sets it.
 *
 * The keys of the locks are serial numbers, the queue lock's that of the
 * token's entry, the hold lock's a new one for each grant.  So names cannot
 * collide, and a new holder never needs a lock that an old one has not yet
 * released (which may take until the old one's session ends).
 *
 * The locks are waited for at transaction level in a subtransaction of our
 * own.  An error that arrives together with the lock would leave a session
 * lock behind, which no abort releases; a transaction lock goes with the
 * subtransaction.  The hold lock of a new grant is taken at session level:
 * its key is new, so it is had at once.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "clock.h"
#include "compat.h"
#include "describe.h"
#include "fence.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "wait.h"

/*
 * The fourth field of our lock tags, beside the 1 and 2 of the advisory lock
 * functions; "objsubid" in pg_locks.
 */
#define TL_CLASS_QUEUE	29761
#define TL_CLASS_HOLD	29762

/* How many waiters of its own owner a grant gets out of the line at a time. */
#define TL_MAX_KICKS	64

/* A wait in progress. */
typedef struct TlWait
{
	TlRequest  *request;
	bool		with_hold;
	TlTime		deadline;		/* of the request */
	TlTime		lock_deadline;	/* of lock_timeout */
	uint64		queue_serial;	/* key of the queue lock, once in the line */
	bool		granted;		/* and not yet returned */
} TlWait;

/* The line that this backend stands in, for its exit callback. */
static bool in_line = false;
static TlKey line_key;

/* A hold lock taken for a grant that is not given yet. */
static uint64 taken_serial = 0;

static TlAnswer wait_once(TlWait *wait, bool *again);
static TlAnswer wait_as_member(TlWait *wait);
static bool recover(TlWait *wait, ErrorData *error);
static TlAnswer attempt(TlRequest *request, bool head, bool with_hold);
static bool join_line(TlWait *wait);
static bool leave_line(void);
static TlTime look_as_head(const TlWait *wait, uint64 released_serial,
						   TlLook *look);
static void acquire(const LOCKTAG *tag, const TlWait *wait);
static void sleep_on_latch(TlTime until);
static void kick_out(const TlKey *key, int procno, uint64 queue_serial);

static void
set_tag(LOCKTAG *tag, uint64 serial, uint16 class)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (serial >> 32),
						 (uint32) serial, class);
}

/*
 * Hold locks
 */

uint64
tl_wait_take_hold(void)
{
	uint64		serial = tl_shmem_next_serial();
	LOCKTAG		tag;

	set_tag(&tag, serial, TL_CLASS_HOLD);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		elog(ERROR, "hold lock " UINT64_FORMAT " is in use", serial);
	return serial;
}

bool
tl_wait_has_hold(uint64 serial)
{
	LOCKTAG		tag;

	set_tag(&tag, serial, TL_CLASS_HOLD);
	return tl_lock_held_by_me(&tag, ExclusiveLock);
}

void
tl_wait_drop_hold(uint64 serial)
{
	LOCKTAG		tag;

	if (serial == 0)
		return;
	set_tag(&tag, serial, TL_CLASS_HOLD);
	/* pg_advisory_unlock_all() may have been quicker; no warning then */
	if (tl_lock_held_by_me(&tag, ExclusiveLock))
		LockRelease(&tag, ExclusiveLock, true);
}

/*
 * Grants
 */

TlAnswer
tl_wait_attempt(TlRequest *request, bool with_hold)
{
	return attempt(request, false, with_hold);
}

static TlAnswer
attempt(TlRequest *request, bool head, bool with_hold)
{
	int			kicks[TL_MAX_KICKS];
	int			nkicks = 0;
	bool		fence_missing;
	TlAnswer	answer;

	do
	{
		uint64		hold_serial;
		uint64		queue_serial;
		TlToken    *token;

		/* all that can fail, before anything is changed */
		tl_fence_prepare();
		tl_token_prepare(&request->owner);
		tl_shmem_make_room(TL_TABLE_TOKENS);
		taken_serial = hold_serial = with_hold ? tl_wait_take_hold() : 0;

		token = tl_token_lock(&request->key, true);
		answer = tl_token_try(token, request, head, hold_serial,
							  &fence_missing);
		if (head && answer != TL_ANSWER_BUSY)
		{
			tl_token_remove_waiter(token, request->owner.procno);
			in_line = false;
			nkicks = tl_token_kick_same_owner(token, &request->owner,
											  kicks, TL_MAX_KICKS);
		}
		queue_serial = token->queue_serial;
		tl_token_unlock(token);
		taken_serial = 0;

		if (hold_serial != 0 && request->grant.hold_serial != hold_serial)
			tl_wait_drop_hold(hold_serial);
		for (int i = 0; i < nkicks; i++)
			kick_out(&request->key, kicks[i], queue_serial);
	} while (fence_missing);
	return answer;
}

/*
 * Waiting
 */

TlAnswer
tl_wait_in_line(TlRequest *request, bool with_hold)
{
	TlWait		wait = {0};
	TlTime		now = tl_now();
	TlAnswer	answer;
	bool		again;

	wait.request = request;
	wait.with_hold = with_hold;
	wait.deadline = tl_time_add(now, request->wait);
	wait.lock_deadline = LockTimeout > 0 ?
		now + (TlTime) LockTimeout * 1000 : TL_NEVER;

	do
	{
		again = false;
		answer = wait_once(&wait, &again);
	} while (again);
	return answer;
}

/*
 * One turn in the line, inside a subtransaction.  *again is set when it ended
 * without an answer and the request is to be made anew.
 */
static TlAnswer
wait_once(TlWait *wait, bool *again)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			lock_timeout = LockTimeout;
	TlAnswer	answer;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		answer = wait_as_member(wait);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		LockTimeout = lock_timeout;

		*again = recover(wait, error);
		FreeErrorData(error);
		answer = TL_ANSWER_BUSY;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return answer;
}

/*
 * Clean up after an error in the line.  Returns true when the wait is to go
 * on, false when it is over; all other errors are raised again, saying what
 * was waited for.
 */
static bool
recover(TlWait *wait, ErrorData *error)
{
	TlRequest  *request = wait->request;
	bool		timed_out = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
	bool		kicked = leave_line();
	char	   *holder;

	if (wait->granted)
	{
		/* the end of the subtransaction failed: nobody will hear of the grant */
		TlToken    *token = tl_token_lock(&request->key, false);

		if (token)
		{
			TlHolder   *mine = tl_token_holder_of(token, &request->owner,
												  request->grant.fence);

			if (mine)
				tl_token_remove_holder(token, mine);
			tl_token_unlock(token);
		}
		tl_wait_drop_hold(request->grant.hold_serial);
	}

	if (kicked && error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED)
		return true;
	if (timed_out && tl_now() < wait->lock_deadline)
		return tl_now() < wait->deadline;

	holder = tl_describe_holder(request);
	if (timed_out)
		error->detail = holder;
	else
		error->context = tl_describe_wait(request, holder, error->context);
	ReThrowError(error);
	return false;				/* keep compiler quiet */
}

static TlAnswer
wait_as_member(TlWait *wait)
{
	TlRequest  *request = wait->request;
	LOCKTAG		queue_tag;
	LOCKTAG		hold_tag;
	uint64		released_serial = 0;
	TlAnswer	answer = TL_ANSWER_BUSY;

	while (!join_line(wait))
	{
		answer = attempt(request, false, wait->with_hold);
		if (answer != TL_ANSWER_BUSY)
			return answer;
	}

	set_tag(&queue_tag, wait->queue_serial, TL_CLASS_QUEUE);
	acquire(&queue_tag, wait);

	/* we are the head */
	for (;;)
	{
		TlLook		look;
		TlTime		now;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		now = look_as_head(wait, released_serial, &look);
		if (look.mine || look.free)
		{
			answer = attempt(request, true, wait->with_hold && !look.mine);
			if (answer == TL_ANSWER_BUSY)
				continue;
			wait->granted = answer == TL_ANSWER_NEW;
			break;
		}
		if (now >= wait->deadline)
		{
			leave_line();
			break;
		}
		if (now >= wait->lock_deadline)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout")));

		if (look.hold_serial != 0)
		{
			set_tag(&hold_tag, look.hold_serial, TL_CLASS_HOLD);
			acquire(&hold_tag, wait);
			LockRelease(&hold_tag, ExclusiveLock, false);
		}
		else
			sleep_on_latch(Min(look.next_change,
							   Min(wait->deadline, wait->lock_deadline)));
		released_serial = look.hold_serial;
	}

	LockRelease(&queue_tag, ExclusiveLock, false);
	return answer;
}

/*
 * Register as a waiter.  Returns false, changing nothing, when there is no
 * need to wait.
 */
static bool
join_line(TlWait *wait)
{
	TlRequest  *request = wait->request;
	TlToken    *token;
	TlLook		look;

	tl_token_prepare(&request->owner);
	tl_shmem_make_room(TL_TABLE_TOKENS);
	token = tl_token_lock(&request->key, true);
	tl_token_look(token, request, false, &look);
	if (!look.mine && !look.free)
	{
		tl_token_add_waiter(token, request, wait->deadline);
		wait->queue_serial = token->queue_serial;
		line_key = request->key;
		in_line = true;
	}
	tl_token_unlock(token);
	return in_line;
}

/* Leave the line, if still in it.  Returns true when kicked out of it. */
static bool
leave_line(void)
{
	TlToken    *token;
	bool		kicked;

	if (!in_line)
		return false;
	token = tl_token_lock(&line_key, false);
	kicked = tl_token_waiter_of(token, tl_my_procno())->kicked;
	tl_token_remove_waiter(token, tl_my_procno());
	tl_token_unlock(token);
	in_line = false;
	return kicked;
}

void
tl_wait_abandon(void)
{
	leave_line();
}

void
tl_wait_abort(void)
{
	tl_wait_drop_hold(taken_serial);
	taken_serial = 0;
}

/*
 * What does the head see?  Returns the time it looked.
 *
 * released_serial is the hold lock that the head just waited for and got, or
 * 0.  If its grant is still there, then the lock was lost to
 * pg_advisory_unlock_all(), and it is no use waiting for it again: note that.
 */
static TlTime
look_as_head(const TlWait *wait, uint64 released_serial, TlLook *look)
{
	TlRequest  *request = wait->request;
	TlToken    *token = tl_token_lock(&request->key, false);
	TlHolder   *holder = tl_token_first_holder(token);
	TlTime		now = tl_token_now();

	tl_token_set_head(token, request->owner.procno);
	if (holder && released_serial != 0 &&
		holder->hold_serial == released_serial)
		holder->hold_serial = 0;
	tl_token_look(token, request, true, look);
	tl_token_unlock(token);
	return now;
}

/*
 * Acquire a lock of the gate at transaction level, waiting no longer than the
 * request or lock_timeout allows.  Both end it with the same error, which
 * recover() tells apart by the time.
 */
static void
acquire(const LOCKTAG *tag, const TlWait *wait)
{
	int			lock_timeout = LockTimeout;
	TlTime		until = Min(wait->deadline, wait->lock_deadline);

	/* 0 means no limit there, so the rest of a wait must not become 0 */
	LockTimeout = until == TL_NEVER ? 0 : tl_time_to_ms(until - tl_now());
	(void) LockAcquire(tag, ExclusiveLock, false, false);
	LockTimeout = lock_timeout; /* in case of an error: wait_once() */
}

static void
sleep_on_latch(TlTime until)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	long		ms = -1;

	if (until != TL_NEVER)
	{
		events |= WL_TIMEOUT;
		ms = tl_time_to_ms(until - tl_now());
	}
	(void) WaitLatch(MyLatch, events, ms, tl_wait_event());
}

/*
 * Get a waiter out of the queue lock's queue, whose owner got the token by
 * another session.  It was marked under the token's lock.
 *
 * No latch reaches a process that sleeps in the lock manager.  But one may
 * take it off the lock's queue, as the deadlock detector does for its own
 * process.  It then gets the error of a deadlock, and knows from the mark
 * that it was none.  It may not have got as far as the queue yet: try again
 * until it has left the line, but not for ever, as it may be stopped there.
 * Nothing but the promptness of its answer depends on it.
 */
static void
kick_out(const TlKey *key, int procno, uint64 queue_serial)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[procno];
	LOCKTAG		tag;
	uint32		hash;
	LWLock	   *partition_lock;

	set_tag(&tag, queue_serial, TL_CLASS_QUEUE);
	hash = LockTagHashCode(&tag);
	partition_lock = LockHashPartitionLock(hash);

	for (int tries = 0; tries < 1000; tries++)
	{
		TlToken    *token = tl_token_lock(key, false);
		TlWaiter   *waiter = token ? tl_token_waiter_of(token, procno) : NULL;
		bool		gone = waiter == NULL || !waiter->kicked;

		if (token)
			tl_token_unlock(token);
		if (gone)
			return;

		LWLockAcquire(partition_lock, LW_EXCLUSIVE);
		if (proc->waitStatus == PROC_WAIT_STATUS_WAITING &&
			proc->waitLock != NULL &&
			memcmp(&proc->waitLock->tag, &tag, sizeof(tag)) == 0)
		{
			RemoveFromWaitQueue(proc, hash);
			SetLatch(&proc->procLatch);
			gone = true;
		}
		LWLockRelease(partition_lock);
		if (gone)
			return;
		pg_usleep(1000);
	}
}
