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

#include "access/relation.h"
#include "access/xact.h"
#include "clock.h"
#include "compat.h"
#include "describe.h"
#include "fence.h"
#include "gate.h"
#include "grant.h"
#include "line.h"
#include "miscadmin.h"
#include "promise.h"
#include "record.h"
#include "stats.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lockdefs.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "wait.h"

/* How many waiters of its own owner a grant gets out of the line at a time. */
#define TL_MAX_KICKS	64

/* A hold lock is waited for no longer than that without a look at the token. */
#define TL_LOOK_AGAIN	((TlTime) 30 * USECS_PER_SEC)

/* A wait in progress. */
typedef struct TlWait
{
	TlRequest  *request;
	bool		with_hold;
	TlTime		start;
	TlTime		deadline;		/* of the request */
	TlTime		lock_deadline;	/* of lock_timeout */
	uint64		queue_serial;	/* key of the queue lock, once in the line */
	bool		granted;		/* and not yet returned */
} TlWait;

/* The line that this backend stands in, for its exit callback. */
static bool in_line = false;
static TlKey line_key;
static TlTime line_keep;		/* how long to keep a place it leaves; 0: */
static TlTime line_until;		/* until then, as long as it was kept before */

/* A hold lock taken for a grant that is not given yet. */
static uint64 taken_serial = 0;

static TlAnswer attempt(TlRequest *request, bool with_hold);
static void supply(TlRequest *request, TlLack lack, Relation *pages);
static void keep_place(TlToken *token, TlRequest *request, TlLack *lack);
static TlAnswer wait_once(TlWait *wait, bool *again);
static bool recover(TlWait *wait, ErrorData *error);
static TlAnswer wait_as_member(TlWait *wait, bool *again);
static TlAnswer give_up(const TlWait *wait);
static TlStanding join_line(TlWait *wait);
static bool leave_line(void);
static TlTime look_in_line(const TlWait *wait, TlStanding standing,
						   uint64 released_serial, TlLook *look);
static bool wait_for_hold(const TlWait *wait, uint64 serial);
static bool take_kick(const TlWait *wait);
static void acquire(const LOCKTAG *tag, const TlWait *wait, TlTime most);
static void sleep_on_latch(TlTime until);

/*
 * Grants
 */

TlAnswer
tl_wait_attempt(TlRequest *request, bool with_hold)
{
	return attempt(request, with_hold);
}

static TlAnswer
attempt(TlRequest *request, bool with_hold)
{
	const TlOwner *owner = &request->owner;
	int			kicks[TL_MAX_KICKS];
	int			nkicks = 0;
	TlAnswer	answer = TL_ANSWER_BUSY;
	Relation	pages = NULL;
	TlLack		lack;

	request->place = 0;
	request->may_record = false;
	request->restarted = 0;
	do
	{
		uint64		hold_serial;
		uint64		queue_serial;
		TlToken    *token;

		/*
		 * All that can fail, before anything is changed.  Room is only asked
		 * for: a request that finds its token in memory may need none.
		 */
		tl_fence_prepare();
		(void) tl_token_prepare(owner->len, false);
		taken_serial = hold_serial = with_hold ? tl_gate_take_hold() : 0;

		token = tl_token_lock(&request->key,
							  tl_shmem_has_room(TL_TABLE_TOKENS));
		if (token == NULL)
		{
			tl_shmem_make_room(TL_TABLE_TOKENS);
			lack = TL_LACK_RECORD;
			tl_wait_abort();
			continue;
		}
		answer = tl_grant_try(token, request, hold_serial, &lack);
		if (answer >= TL_ANSWER_NEW && (token->nwaiters > 0 || in_line))
		{
			TlWaiter   *waiter = tl_line_waiter_of(token, owner->procno);
			TlWaiter   *place;

			if (waiter && in_line)
				tl_line_remove(token, waiter);
			place = tl_line_place_of(token, owner);
			if (place)
				tl_line_remove(token, place);
			in_line = false;
			nkicks = tl_line_kick(token, owner, kicks, TL_MAX_KICKS);
		}
		else if (answer == TL_ANSWER_BUSY && lack == TL_LACK_NOTHING)
		{
			keep_place(token, request, &lack);
			if (request->place > 0)
				answer = TL_ANSWER_QUEUED;
		}
		queue_serial = token->queue_serial;
		tl_token_unlock(token);
		taken_serial = 0;
		if (unlikely(request->grant.to_record))
			tl_record_granted(pages, &request->key, request->grant.fence);

		if (hold_serial != 0 && request->grant.hold_serial != hold_serial)
			tl_gate_spare_hold(hold_serial);
		for (int i = 0; i < nkicks; i++)
			tl_gate_kick(&request->key, kicks[i], queue_serial, TL_CLASS_QUEUE);
		if (unlikely(lack != TL_LACK_NOTHING))
			supply(request, lack, &pages);
	} while (lack != TL_LACK_NOTHING);
	if (pages)
		relation_close(pages, RowExclusiveLock);
	return answer;
}

/* Get what a request was found to lack, which may take its time. */
static void
supply(TlRequest *request, TlLack lack, Relation *pages)
{
	const TlLacks *lacks = &request->lacks;

	switch (lack)
	{
		case TL_LACK_NOTHING:
		case TL_LACK_FENCE:
			/* the next attempt begins with it */
			break;
		case TL_LACK_RECORD:
			tl_token_prepare(request->owner.len, true);
			break;
		case TL_LACK_PROMISE:
			tl_promise_reserve(lacks->ttl);
			break;
		case TL_LACK_PAGES:
			*pages = tl_record_open();
			request->may_record = true;
			break;
		case TL_LACK_SLOT:
			tl_record_error_full();
			break;
		case TL_LACK_RESTART:
			if (tl_record_restart(&request->key, lacks->fence, request->ttl,
								  &request->grant))
				request->restarted = lacks->fence;
			break;
		case TL_LACK_WRITER:
			tl_record_wait(&request->key, lacks->fence);
			break;
		case TL_LACK_CLEAR:
			tl_record_clear(&request->key, lacks->fence);
			break;
	}
}

/*
 * Keep the owner's place in line, if it asks for that; and tell the place, if
 * it has one.
 */
static void
keep_place(TlToken *token, TlRequest *request, TlLack *lack)
{
	TlWaiter   *place = tl_line_place_of(token, &request->owner);

	if (request->keep_place != 0)
	{
		TlTime		until = tl_time_add(tl_token_now(), request->keep_place);

		if (place && place->procno < 0)
			tl_line_keep(token, place, until);
		else if (!place && tl_token_has_record(request->owner.len))
			place = tl_line_add(token, request, TL_STANDING_PLACE, until);
		else if (!place)
			*lack = TL_LACK_RECORD;
	}
	request->place = place ? tl_line_number(token, place) : 0;
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
	wait.start = now;
	wait.deadline = tl_time_add(now, request->wait);
	wait.lock_deadline = LockTimeout > 0 ?
		now + (TlTime) LockTimeout * 1000 : TL_NEVER;

	do
	{
		again = false;
		answer = wait_once(&wait, &again);
	} while (again);
	tl_stats_waited(&request->key, tl_now() - wait.start);
	if (answer < TL_ANSWER_NEW)
		tl_stats_count(&request->key, TL_EVENT_TIMEOUT, 1);
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
		answer = wait_as_member(wait, again);
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
		answer = *again ? TL_ANSWER_BUSY : give_up(wait);
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
			TlHolder   *mine = tl_grant_of(token, &request->owner,
										   request->grant.fence);

			if (mine)
				tl_grant_end(token, mine, TL_EVENT_PUT);
			tl_token_unlock(token);
		}
		tl_gate_drop_hold(request->grant.hold_serial);
	}

	if (kicked && error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED)
		return true;
	if (timed_out && tl_now() < wait->lock_deadline)
		return tl_now() < wait->deadline;

	tl_stats_waited(&request->key, tl_now() - wait->start);
	holder = tl_describe_holder(request);
	if (timed_out)
		error->detail = holder;
	else
		error->context = tl_describe_wait(request, holder, error->context);
	ReThrowError(error);
	return false;				/* keep compiler quiet */
}

static TlAnswer
wait_as_member(TlWait *wait, bool *again)
{
	TlRequest  *request = wait->request;
	LOCKTAG		queue_tag;
	uint64		released_serial = 0;
	TlStanding	standing;
	TlAnswer	answer;

	while ((standing = join_line(wait)) == TL_STANDING_NONE)
	{
		answer = attempt(request, wait->with_hold);
		wait->granted = answer == TL_ANSWER_NEW;
		if (answer >= TL_ANSWER_NEW)
			return answer;
	}

	if (standing == TL_STANDING_GATE)
	{
		tl_gate_tag(&queue_tag, wait->queue_serial, TL_CLASS_QUEUE);
		acquire(&queue_tag, wait, TL_NEVER);
	}

	/* we are the head, or stand apart from the gate */
	for (;;)
	{
		TlLook		look;
		TlTime		now;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		now = look_in_line(wait, standing, released_serial, &look);
		if (!in_line)
		{
			/* the place was used by another session, and the token is gone */
			*again = true;
			return TL_ANSWER_BUSY;
		}
		if (look.mine || look.free)
		{
			answer = attempt(request, wait->with_hold && !look.mine);
			if (answer < TL_ANSWER_NEW)
				continue;
			wait->granted = answer == TL_ANSWER_NEW;
			break;
		}
		if (now >= wait->deadline ||
			(standing == TL_STANDING_UPGRADE && !look.upgrade))
		{
			/* its time is over, or the shared hold that it had */
			answer = give_up(wait);
			break;
		}
		if (now >= wait->lock_deadline)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout")));

		released_serial = 0;
		if (look.hold_serial == 0 || standing != TL_STANDING_GATE)
			sleep_on_latch(Min(look.next_change,
							   Min(wait->deadline, wait->lock_deadline)));
		else if (wait_for_hold(wait, look.hold_serial))
			released_serial = look.hold_serial;
	}

	if (standing == TL_STANDING_GATE)
		LockRelease(&queue_tag, ExclusiveLock, false);
	return answer;
}

/* Leave the line without the token. */
static TlAnswer
give_up(const TlWait *wait)
{
	TlRequest  *request = wait->request;
	TlToken    *token;

	leave_line();
	request->place = 0;
	token = tl_token_lock(&request->key, false);
	if (token)
	{
		TlWaiter   *place = tl_line_place_of(token, &request->owner);

		if (place)
			request->place = tl_line_number(token, place);
		tl_token_unlock(token);
	}
	return request->place > 0 ? TL_ANSWER_QUEUED : TL_ANSWER_BUSY;
}

/*
 * Register as a waiter, and return of what kind.  NONE, and nothing changed,
 * when there is no need to wait.
 */
static TlStanding
join_line(TlWait *wait)
{
	TlRequest  *request = wait->request;
	TlStanding	standing = TL_STANDING_NONE;
	bool		second_upgrade = false;
	TlToken    *token;
	TlLook		look;

	tl_token_prepare(request->owner.len, true);
	while (!(token = tl_token_lock(&request->key,
								   tl_shmem_has_room(TL_TABLE_TOKENS))))
		tl_shmem_make_room(TL_TABLE_TOKENS);
	tl_grant_look(token, request, &look);
	if (!look.mine && !look.free)
	{
		TlWaiter   *place = tl_line_place_of(token, &request->owner);

		if (look.upgrade)
			standing = TL_STANDING_UPGRADE;
		else if (place ? place->procno < 0 : request->keep_place != 0)
			standing = TL_STANDING_PLACE;
		else
			standing = TL_STANDING_GATE;

		second_upgrade = standing == TL_STANDING_UPGRADE &&
			tl_line_upgrader(token) != NULL;
		if (!second_upgrade)
		{
			if (standing != TL_STANDING_PLACE || !place)
				place = tl_line_add(token, request, standing, wait->deadline);
			if (standing == TL_STANDING_PLACE)
			{
				tl_line_occupy(token, place, &request->owner);
				line_until = place->deadline;
				place->deadline = wait->deadline;
			}
			wait->queue_serial = token->queue_serial;
			line_key = request->key;
			line_keep = request->keep_place;
			in_line = true;
		}
	}
	tl_token_unlock(token);

	if (second_upgrade)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("another shared holder waits already to have the token alone"),
				 errdetail("Each of the two would wait for the other to give it back."),
				 errhint("Give the token back and ask for it anew.")));
	return standing;
}

/* Leave the line, if still in it.  Returns true when kicked out of it. */
static bool
leave_line(void)
{
	TlToken    *token;
	TlWaiter   *waiter;
	bool		kicked = false;

	if (!in_line)
		return false;
	in_line = false;
	token = tl_token_lock(&line_key, false);
	if (token == NULL)
		return false;
	/* a place may be gone, when its owner was granted by another session */
	waiter = tl_line_waiter_of(token, tl_my_procno());
	if (waiter)
	{
		kicked = waiter->kicked;
		if (waiter->standing == TL_STANDING_PLACE)
			tl_line_vacate(token, waiter, line_keep == 0 ? line_until :
						   tl_time_add(tl_token_now(), line_keep));
		else
			tl_line_remove(token, waiter);
	}
	tl_token_unlock(token);
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
	tl_gate_drop_hold(taken_serial);
	taken_serial = 0;
}

/*
 * What does one see that stands in line?  Returns the time it looked.
 *
 * released_serial is the hold lock that the head just waited for and got, or
 * 0.  If its grant is still there, then the lock was lost to
 * pg_advisory_unlock_all(), and it is no use waiting for it again: note that.
 */
static TlTime
look_in_line(const TlWait *wait, TlStanding standing, uint64 released_serial,
			 TlLook *look)
{
	TlRequest  *request = wait->request;
	TlToken    *token = tl_token_lock(&request->key, false);
	TlHolder   *first;
	TlWaiter   *waiter;
	TlTime		now;

	if (token == NULL)
	{
		in_line = false;
		return tl_now();
	}
	first = tl_holder_at(token->holders);
	waiter = tl_line_waiter_of(token, request->owner.procno);
	now = tl_token_now();
	if (standing == TL_STANDING_GATE)
	{
		if (token->head_procno != request->owner.procno)
		{
			token->head_procno = request->owner.procno;
			/* a place may be older than this head, and be no longer behind */
			if (token->nsleepers > 0)
				tl_token_wake(token);
		}
		/* whatever it was about, we look now */
		waiter->kicked = false;
	}
	if (first && released_serial != 0 &&
		first->hold_serial == released_serial)
		first->hold_serial = 0;
	tl_grant_look(token, request, look);
	/* the owner's place goes when another of its sessions is granted */
	in_line = waiter != NULL || look->mine;
	tl_token_unlock(token);
	return now;
}

/*
 * Wait for the hold lock of a grant, and release it again.  Returns false
 * when it did not come to that: our time is over, or the head is to look at
 * the token, because it was told so or has not looked for long.
 *
 * In a subtransaction of its own, so that the queue lock, and with it our
 * place at the head of the line, is kept whatever happens.
 */
static bool
wait_for_hold(const TlWait *wait, uint64 serial)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			lock_timeout = LockTimeout;
	volatile bool got = false;
	LOCKTAG		tag;

	tl_gate_tag(&tag, serial, TL_CLASS_HOLD);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		acquire(&tag, wait, TL_LOOK_AGAIN);
		LockRelease(&tag, ExclusiveLock, false);
		ReleaseCurrentSubTransaction();
		got = true;
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

		/* which timeout it was shows by the clock, in the caller */
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			!(error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED &&
			  take_kick(wait)))
			ReThrowError(error);
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return got;
}

/* Were we kicked?  The mark is taken off, or it would hide a later deadlock. */
static bool
take_kick(const TlWait *wait)
{
	TlToken    *token = tl_token_lock(&wait->request->key, false);
	TlWaiter   *waiter;
	bool		kicked;

	waiter = tl_line_waiter_of(token, wait->request->owner.procno);
	kicked = waiter->kicked;
	waiter->kicked = false;
	tl_token_unlock(token);
	return kicked;
}

/*
 * Acquire a lock of the gate at transaction level, waiting no longer than the
 * request or lock_timeout allows, nor than "most".  All end it with the same
 * error, which the caller tells apart by the time.
 */
static void
acquire(const LOCKTAG *tag, const TlWait *wait, TlTime most)
{
	int			lock_timeout = LockTimeout;
	TlTime		until = Min(Min(wait->deadline, wait->lock_deadline),
							tl_time_add(tl_now(), most));

	/* a waiter must not hold back vacuum by a look at the catalogs */
	InvalidateCatalogSnapshot();
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
	InvalidateCatalogSnapshot();
	(void) WaitLatch(MyLatch, events, ms, tl_wait_event());
}
