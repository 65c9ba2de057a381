/*-------------------------------------------------------------------------
 *
 * job_wait.c
 *	  Waiting for jobs, and waking those who wait.
 *
 * A waiter stands in the table's line before it looks at the table, and who
 * has made jobs ready goes through the line when others can see them.  So
 * either the look finds them, or the waiter is in the line and gets woken.
 *
 * Of those who wait, the first one looks when the clock says so: a job comes
 * due, a worker lapses, the look behind has more to read, or it is time to
 * see what came without telling us.
 *
 * Locks: that of the table's entry in shared memory, and no other of ours
 * meanwhile.  The callbacks at the end of a transaction cannot fail.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/partition.h"
#include "clock.h"
#include "compat.h"
#include "job_position.h"
#include "job_wait.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* How often to look for what nobody tells; and where the trigger tells most. */
#define TL_LOOK_ALONE	(INT64CONST(1) * 1000 * 1000)
#define TL_LOOK_TOLD	(INT64CONST(10) * 1000 * 1000)

/* After a look that a lapse should have made good, but did not. */
#define TL_LOOK_LAPSED	(50 * 1000)

/* Jobs that were seen should be claimed by then. */
#define TL_LOOK_SEEN	(INT64CONST(1) * 1000 * 1000)

/* The line that this backend stands in, for its callbacks. */
static bool in_line = false;
static Oid	line_relation;
static SubTransactionId line_subid;

/* What it knows of the table. */
static TlTime look_pause;
static bool heed_lapses;

/* A table whose waiters are to be woken when the (sub)transaction has ended. */
typedef struct TlWakeNote
{
	Oid			relation;
	SubTransactionId subid;
	bool		committed;		/* the outcome that wakes them */
} TlWakeNote;

static TlWakeNote *notes = NULL;
static int	nnotes = 0;
static int	notes_allocated = 0;

/* The table that a statement of ours updates, which has yet to fire the trigger. */
static Oid	own_update = InvalidOid;

static void abandon(void);
static void on_xact(XactEvent event, void *arg);
static void on_release(ResourceReleasePhase phase, bool isCommit,
					   bool isTopLevel, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId mySubid,
					   SubTransactionId parentSubid, void *arg);
static void on_session_exit(int code, Datum arg);

void
tl_job_wait_attach(void)
{
	static bool attached = false;

	if (likely(attached))
		return;
	tl_shmem_attach();
	notes_allocated = 8;
	notes = MemoryContextAlloc(TopMemoryContext,
							   notes_allocated * sizeof(TlWakeNote));
	/* while shared memory can be used */
	before_shmem_exit(on_session_exit, 0);
	RegisterXactCallback(on_xact, NULL);
	RegisterResourceReleaseCallback(on_release, NULL);
	RegisterSubXactCallback(on_subxact, NULL);
	attached = true;
}

/*
 * Waking
 */

void
tl_job_wake(Oid relation)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table == NULL)
		return;
	tl_job_line_call(&table->line);
	tl_position_unlock(table);
}

static bool
is_noted(Oid relation, bool committed, SubTransactionId subid)
{
	for (int i = 0; i < nnotes; i++)
		if (notes[i].relation == relation && notes[i].committed == committed &&
			(committed || notes[i].subid == subid))
			return true;
	return false;
}

/*
 * For a commit one note will do, as it was made here or further out.  But each
 * subtransaction may abort by itself.
 */
static void
note(Oid relation, bool committed)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (is_noted(relation, committed, subid))
		return;
	if (nnotes == notes_allocated)
	{
		notes = repalloc(notes, notes_allocated * 2 * sizeof(TlWakeNote));
		notes_allocated *= 2;
	}
	notes[nnotes].relation = relation;
	notes[nnotes].subid = subid;
	notes[nnotes].committed = committed;
	nnotes++;
}

void
tl_job_wake_at_commit(Oid relation)
{
	tl_job_wait_attach();
	note(relation, true);
	if (get_rel_relispartition(relation))
	{
		List	   *ancestors = get_partition_ancestors(relation);
		ListCell   *cell;

		foreach(cell, ancestors)
			note(lfirst_oid(cell), true);
		list_free(ancestors);
	}
}

void
tl_job_wake_at_abort(Oid relation)
{
	note(relation, false);
}

void
tl_job_wake_database(void)
{
	tl_job_wait_attach();
	tl_position_forget_all();
}

void
tl_job_wake_begin_own(Oid relation)
{
	own_update = relation;
}

void
tl_job_wake_end_own(void)
{
	own_update = InvalidOid;
}

/*
 * A statement of ours fires the trigger once.  If it is fired more often, then
 * triggers of the application have changed jobs, too.
 */
bool
tl_job_wake_is_own(Oid relation)
{
	if (relation != own_update)
		return false;
	own_update = InvalidOid;
	return true;
}

/*
 * Waiting
 */

static void
learn(TlJobTableInfo *info)
{
	look_pause = info->wake && info->heap ? TL_LOOK_TOLD : TL_LOOK_ALONE;
	heed_lapses = !info->paused;
}

void
tl_job_wait_join(TlJobTableInfo *info)
{
	TlJobTable *table;

	tl_job_wait_attach();
	if (in_line)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot wait for jobs while this session waits for jobs already"),
				 errhint("A trigger or function that a waiting claim runs cannot wait itself: have it claim without a wait.")));
	learn(info);
	table = tl_position_enter(info);
	tl_job_line_add(&table->line);
	table->line.last_look = tl_now();
	tl_job_line_look_at(&table->line,
						table->line.last_look + look_pause);
	line_relation = info->relation;
	line_subid = GetCurrentSubTransactionId();
	in_line = true;
	tl_position_unlock(table);
}

/*
 * When to go on with the look behind?  As long as a round is under way; and
 * until one has begun since the last call, as that can be of a row behind the
 * position.
 */
static TlTime
next_round(const TlJobTable *table, TlJobTableInfo *info, TlTime now)
{
	const TlLookState *look = &table->look;
	TlTime		next = look->next;

	if (look->leaf == 0 && look->block == 0 && look->busy_until <= now &&
		(!info->keyed || look->round_started > table->line.last_call))
		return TL_NEVER;
	if (!info->heap)
		next = look->round_started + TL_LOOK_ALONE;
	return Max(next, now + 1000);
}

void
tl_job_wait_in_vain(TlJobTableInfo *info, TlTime due)
{
	TlTime		now = tl_now();
	TlTime		next;
	TlJobTable *table;
	bool		sees_all = !tl_job_row_security(info);

	learn(info);
	next = Min(due, now + look_pause);
	table = tl_position_lock(info->relation);
	tl_job_line_me()->looking = false;
	if (!info->paused)
		next = Min(next, next_round(table, info, now));
	tl_job_line_look_at(&table->line, next);
	if (!sees_all)
	{
		/* there may be jobs that others are shown */
		tl_job_line_hand_on(&table->line);
	}
	tl_position_unlock(table);
}

/*
 * When does the first in line look by the clock?  A lapse that is overdue has
 * been looked at, in vain.
 */
static TlTime
clock_time(const TlJobTable *table)
{
	TlTime		lapse = table->next_lapse;

	if (!heed_lapses)
		lapse = TL_NEVER;
	else if (lapse <= table->line.last_look)
		lapse = table->line.last_look + TL_LOOK_LAPSED;
	return Min(table->line.next_look, lapse);
}

static void
begin_look(TlJobLine *line, TlTime now)
{
	TlJobWaiter *me = tl_job_line_me();

	me->woken = false;
	me->looking = true;
	me->seen = line->calls;
	line->last_look = now;
}

bool
tl_job_wait_sleep(TlTime deadline)
{
	for (;;)
	{
		TlJobTable *table;
		TlTime		now;
		TlTime		until = deadline;
		int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
		long		ms = -1;
		bool		first;
		bool		by_clock;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();

		table = tl_position_lock(line_relation);
		now = tl_now();
		first = tl_job_line_is_first(&table->line);
		if (first)
			until = Min(until, clock_time(table));
		by_clock = first && now >= clock_time(table);
		if (by_clock)
		{
			/* on behalf of all: it is a call like any other */
			table->line.calls++;
			table->line.next_look = now + look_pause;
		}
		if (by_clock || now >= deadline || tl_job_line_me()->woken)
		{
			begin_look(&table->line, now);
			tl_position_unlock(table);
			return now >= deadline;
		}
		tl_position_unlock(table);

		if (until != TL_NEVER)
		{
			events |= WL_TIMEOUT;
			ms = tl_time_to_ms(until - now);
		}
		InvalidateCatalogSnapshot();
		(void) WaitLatch(MyLatch, events, ms, tl_wait_event());
	}
}

void
tl_job_wait_leave(TlJobTableInfo *info, bool found, bool handed_out,
				  TlTime due)
{
	bool		sees_all = !tl_job_row_security(info);
	TlJobTable *table = tl_position_lock(info->relation);

	in_line = false;
	if (found && !handed_out)
		due = Min(due, tl_now() + TL_LOOK_SEEN);
	tl_job_line_look_at(&table->line, due);
	tl_job_line_remove(&table->line);
	if (tl_job_line_me()->woken || !sees_all)
		tl_job_line_hand_on(&table->line);
	tl_position_unlock(table);
}

bool
tl_job_wait_others(Oid relation)
{
	TlJobTable *table = tl_position_lock(relation);
	bool		others = table->line.waiting > 1;

	tl_position_unlock(table);
	return others;
}

void
tl_job_wait_hand_on(Oid relation)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table == NULL)
		return;
	tl_job_line_hand_on(&table->line);
	tl_position_unlock(table);
}

/*
 * Ends
 */

/*
 * Leave the line after an error.  If a look was cut short, another one has to
 * look; and rows that it has locked may have been passed by.
 */
static void
abandon(void)
{
	TlJobTable *table;
	TlJobWaiter *me = tl_job_line_me();

	if (!in_line)
		return;
	in_line = false;
	table = tl_position_lock(line_relation);
	if (table == NULL)
		return;
	tl_job_line_remove(&table->line);
	if (me->woken || me->looking)
		tl_job_line_call(&table->line);
	tl_position_unlock(table);
}

static void
end_transaction(bool committed)
{
	for (int i = 0; i < nnotes; i++)
		if (notes[i].committed == committed)
			tl_job_wake(notes[i].relation);
	nnotes = 0;
	own_update = InvalidOid;
}

/*
 * These are registered before those of job_xact.c and so are run after them:
 * who is woken has to find the islands that they make.
 */
static void
on_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_ABORT:
			abandon();
			end_transaction(false);
			break;
		case XACT_EVENT_PREPARE:
			/* when it is decided, everybody is woken */
			nnotes = 0;
			break;
		default:
			break;
	}
}

/*
 * At commit, others are to be woken when they can not only see what was done
 * but also hear of changed settings, which is a little later.
 */
static void
on_release(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
		   void *arg)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && isCommit && isTopLevel &&
		nnotes > 0)
		end_transaction(true);
}

static void
commit_subtransaction(SubTransactionId mySubid, SubTransactionId parentSubid)
{
	int			kept = 0;

	for (int i = 0; i < nnotes; i++)
	{
		TlWakeNote	moved = notes[i];

		if (moved.subid == mySubid)
		{
			if (!moved.committed &&
				is_noted(moved.relation, false, parentSubid))
				continue;
			moved.subid = parentSubid;
		}
		notes[kept++] = moved;
	}
	nnotes = kept;
}

static void
abort_subtransaction(SubTransactionId subid)
{
	int			kept = 0;

	for (int i = 0; i < nnotes; i++)
		if (notes[i].subid != subid)
			notes[kept++] = notes[i];
		else if (!notes[i].committed)
			tl_job_wake(notes[i].relation);
	nnotes = kept;
	if (in_line && line_subid == subid)
		abandon();
	own_update = InvalidOid;
}

static void
on_subxact(SubXactEvent event, SubTransactionId mySubid,
		   SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		commit_subtransaction(mySubid, parentSubid);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		abort_subtransaction(mySubid);
}

static void
on_session_exit(int code, Datum arg)
{
	abandon();
}
