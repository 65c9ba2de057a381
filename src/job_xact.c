/*-------------------------------------------------------------------------
 *
 * job_xact.c
 *	  What this transaction has claimed and finished, and what is to be done
 *	  about it when it ends.
 *
 * The callbacks neither allocate nor read catalogs nor compare keys: an error
 * after the commit record would be a PANIC.  They run when others can see what
 * the transaction has done, and that is the time to lower counts and to add
 * islands: earlier, a claimer could look at an island, find its rows locked
 * and take it away.
 *
 * Locks: none held while calling job_worker.c and job_position.c.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "job_position.h"
#include "job_turn.h"
#include "job_wait.h"
#include "job_worker.h"
#include "job_xact.h"
#include "session.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

typedef struct TlJobNote
{
	TlJobNoteKind kind;
	SubTransactionId subid;
	TlKey		worker;
	int64		n;
	TlKeyStamp	stamp;			/* of the ranges */
	TlRange		range;
	bool		no_island;		/* the range is empty: turns tell of all rows */
	bool		replaced;		/* of what gives back: an abort restores this */
	TlRange		before;
} TlJobNote;

/* A worker that counts as alive because of this transaction. */
typedef struct TlJobOpen
{
	TlKey		worker;
	SubTransactionId unreleased_in; /* where tl_job_note_unreleased was
									 * called; 0: nowhere */
	bool		got_rows;		/* it was handed some */
} TlJobOpen;

/*
 * So many of the last ones a claim looks at to see which it has set free
 * itself; others have to wait for the commit.
 */
#define TL_FREED_TURNS	1000

/* In the order in which things happened. */
static TlTurnNote *turns = NULL;
static int	nturns = 0;
static int	turns_allocated = 0;

static TlJobNote *notes = NULL;
static int	nnotes = 0;
static int	notes_allocated = 0;

static TlJobOpen *opens = NULL;
static int	nopens = 0;
static int	opens_allocated = 0;

static void on_xact(XactEvent event, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId mySubid,
					   SubTransactionId parentSubid, void *arg);
static void on_session_exit(int code, Datum arg);

void
tl_job_attach(void)
{
	static bool attached = false;

	tl_session_attach_primary();
	if (likely(attached))
		return;
	tl_job_reserve();

	/* callbacks run backwards, and its have to come after ours */
	tl_job_wait_attach();
	before_shmem_exit(on_session_exit, 0);
	RegisterXactCallback(on_xact, NULL);
	RegisterSubXactCallback(on_subxact, NULL);
	attached = true;
}

static void *
grow(void *array, int *allocated, Size size)
{
	*allocated = Max(*allocated * 2, 8);
	return array ? repalloc_huge(array, *allocated * size) :
		MemoryContextAllocHuge(TopMemoryContext, *allocated * size);
}

void
tl_job_reserve(void)
{
	/* one claim notes the claim and what it has taken from one dead worker */
	if (nnotes + 2 > notes_allocated)
	{
		int			allocated = notes_allocated;

		notes = grow(notes, &allocated, sizeof(TlJobNote));
		notes_allocated = allocated;
	}
	if (nopens + 1 > opens_allocated)
	{
		int			allocated = opens_allocated;

		opens = grow(opens, &allocated, sizeof(TlJobOpen));
		opens_allocated = allocated;
	}
}

static bool
same_worker(const TlKey *a, const TlKey *b)
{
	return tl_key_compare(a, b, sizeof(TlKey)) == 0;
}

static TlJobOpen *
find_open(const TlKey *worker)
{
	for (int i = nopens - 1; i >= 0; i--)
		if (same_worker(&opens[i].worker, worker))
			return &opens[i];
	return NULL;
}

bool
tl_job_is_open(const TlKey *worker)
{
	return find_open(worker) != NULL;
}

void
tl_job_open(const TlKey *worker)
{
	TlJobOpen  *open;

	Assert(nopens < opens_allocated);
	open = &opens[nopens++];
	open->worker = *worker;
	open->unreleased_in = InvalidSubTransactionId;
	open->got_rows = false;
}

void
tl_job_note_got(const TlKey *worker)
{
	TlJobOpen  *open = find_open(worker);

	if (open)
		open->got_rows = true;
}

void
tl_job_note_unreleased(const TlKey *worker)
{
	TlJobOpen  *open = find_open(worker);

	if (open)
		open->unreleased_in = GetCurrentSubTransactionId();
}

static TlJobNote *
find_note(TlJobNoteKind kind, const TlKey *worker, SubTransactionId subid)
{
	for (int i = nnotes - 1; i >= 0; i--)
		if (notes[i].kind == kind && notes[i].subid == subid &&
			same_worker(&notes[i].worker, worker))
			return &notes[i];
	return NULL;
}

void
tl_job_note(TlJobNoteKind kind, const TlKey *worker, int64 n,
			const TlRange *range, const TlKeyType *type)
{
	TlJobNote  *note;

	Assert(nnotes < notes_allocated);
	note = &notes[nnotes++];
	note->kind = kind;
	note->subid = GetCurrentSubTransactionId();
	note->worker = *worker;
	note->n = n;
	note->stamp = type->stamp;
	note->no_island = false;
	note->replaced = false;
	if (range)
		note->range = *range;
	else
		tl_range_forget(&note->range);
}

void
tl_job_note_no_island(void)
{
	notes[nnotes - 1].no_island = true;
}

void
tl_job_note_fewer(const TlKey *worker, int64 n)
{
	TlJobNote  *note = find_note(TL_NOTE_CLAIMED, worker,
								 GetCurrentSubTransactionId());

	if (note)
		note->n -= n;
	tl_worker_lower(worker, n);
}

static bool
gives_back(const TlJobNote *note)
{
	return note->kind == TL_NOTE_FINISHED ||
		note->kind == TL_NOTE_GIVEN_UP || note->kind == TL_NOTE_RELEASED;
}

int64
tl_job_pending(const TlKey *worker)
{
	int64		n = 0;

	for (int i = 0; i < nnotes; i++)
		if (gives_back(&notes[i]) && same_worker(&notes[i].worker, worker))
			n += notes[i].n;
	return n;
}

void
tl_job_note_replaced(const TlKey *worker, const TlRange *range)
{
	for (int i = 0; i < nnotes; i++)
		if (gives_back(&notes[i]) && !notes[i].replaced &&
			same_worker(&notes[i].worker, worker))
		{
			notes[i].replaced = true;
			notes[i].before = *range;
		}
}

void
tl_job_merge_note(const TlKeyType *type)
{
	TlJobNote  *last = &notes[nnotes - 1];

	for (TlJobNote *note = notes; note < last; note++)
	{
		TlRange		range = note->range;

		if (note->kind != last->kind || note->subid != last->subid ||
			note->kind == TL_NOTE_TAKEN ||
			!tl_stamp_same(&note->stamp, &last->stamp) ||
			!same_worker(&note->worker, &last->worker))
			continue;
		if (note->no_island)
			range = last->range;
		else if (!last->no_island)
			tl_range_widen(&range, &last->range, type);
		note->range = range;
		note->no_island = note->no_island && last->no_island;
		note->n += last->n;
		nnotes--;
		return;
	}
}

/*
 * Turns
 */

void
tl_job_reserve_turns(int n)
{
	int			allocated = turns_allocated;

	if (nturns + n <= allocated)
		return;
	allocated = Max(allocated, nturns + n);
	turns = grow(turns, &allocated, sizeof(TlTurnNote));
	turns_allocated = allocated;
}

void
tl_job_note_turn(Oid relation, uint64 hash, bool freed)
{
	TlTurnNote *note = &turns[nturns++];

	Assert(nturns <= turns_allocated);
	note->relation = relation;
	note->subid = GetCurrentSubTransactionId();
	note->freed = freed;
	note->hash = hash;
}

void
tl_job_give_up_turn(Oid relation, uint64 hash)
{
	for (int i = nturns - 1; i >= 0; i--)
		if (turns[i].hash == hash && turns[i].relation == relation &&
			!turns[i].freed)
		{
			turns[i].hash = 0;
			break;
		}
	while (nturns > 0 && turns[nturns - 1].hash == 0)
		nturns--;
}

uint64 *
tl_job_freed_turns(Oid relation, int *n)
{
	int			from = Max(0, nturns - TL_FREED_TURNS);
	uint64	   *hashes = palloc(sizeof(uint64) * (nturns - from + 1));

	*n = 0;
	for (int i = from; i < nturns; i++)
		if (turns[i].freed && turns[i].relation == relation)
			hashes[(*n)++] = turns[i].hash;
	return hashes;
}

/* Does the transaction have a turn by what has not been rolled back? */
static bool
has_turn(Oid relation, uint64 hash)
{
	for (int i = 0; i < nturns; i++)
		if (turns[i].hash == hash && turns[i].relation == relation &&
			!turns[i].freed)
			return true;
	return false;
}

static void
end_turns(TlTurnEnd end)
{
	int			n = nturns;
	int			from = 0;

	nturns = 0;
	for (int i = 1; i <= n; i++)
		if (i == n || turns[i].relation != turns[from].relation)
		{
			/* a job of those keys may be ready now */
			if (tl_turn_end(&turns[from], i - from, end))
				tl_job_wake(turns[from].relation);
			from = i;
		}
}

static void
abort_turns(SubTransactionId subid)
{
	int			n = nturns;

	/* what was noted since it began is its own, or became so */
	while (nturns > 0 && turns[nturns - 1].subid == subid)
		nturns--;
	for (int i = nturns; i < n; i++)
		if (turns[i].hash != 0 && !turns[i].freed &&
			!has_turn(turns[i].relation, turns[i].hash))
			(void) tl_turn_end(&turns[i], 1, TL_TURN_ABORTED);
}

static void
add_island(const TlJobNote *note)
{
	if (!note->no_island)
		tl_position_add_island(note->worker.relation, &note->range,
							   &note->stamp);
}

/* What a note means when its transaction ends. */
static void
settle(const TlJobNote *note, bool committed)
{
	switch (note->kind)
	{
		case TL_NOTE_CLAIMED:
			if (committed)
			{
				tl_position_count(note->worker.relation, TL_JOBS_CLAIMED,
								  note->n);
				return;
			}
			tl_worker_lower(&note->worker, note->n);
			add_island(note);
			break;
		case TL_NOTE_TAKEN:
			if (!committed)
				break;
			tl_worker_lower_dead(&note->worker, note->n, &note->range,
								 &note->stamp);
			tl_position_count(note->worker.relation, TL_JOBS_TAKEN, note->n);
			break;
		case TL_NOTE_FINISHED:
		case TL_NOTE_GIVEN_UP:
		case TL_NOTE_RELEASED:
			if (committed)
				tl_worker_lower(&note->worker, note->n);
			else if (note->replaced)
				tl_worker_restore_range(&note->worker, &note->before,
										&note->stamp);
			if (committed && note->kind == TL_NOTE_FINISHED)
				tl_position_count(note->worker.relation, TL_JOBS_FINISHED,
								  note->n);
			if (committed && note->kind == TL_NOTE_RELEASED)
				add_island(note);
			break;
	}
}

static void
end_transaction(bool committed, bool prepared)
{
	/* backwards, so that the oldest range is restored at last */
	for (int i = nnotes - 1; i >= 0 && !prepared; i--)
		settle(&notes[i], committed);
	nnotes = 0;
	end_turns(prepared ? TL_TURN_PREPARED :
			  committed ? TL_TURN_COMMITTED : TL_TURN_ABORTED);
	for (int i = 0; i < nopens; i++)
		tl_worker_close(&opens[i].worker, committed,
						!committed && opens[i].unreleased_in != InvalidSubTransactionId,
						opens[i].got_rows);
	nopens = 0;
}

static void
on_xact(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			end_transaction(true, false);
			break;
		case XACT_EVENT_ABORT:
			end_transaction(false, false);
			break;
		case XACT_EVENT_PREPARE:

			/*
			 * Nobody tells us when it commits.  Counts stay as they are,
			 * which is never too small, and the lease runs from now.
			 */
			end_transaction(true, true);
			break;
		default:
			break;
	}
}

static void
abort_subtransaction(SubTransactionId subid)
{
	int			kept = 0;

	for (int i = nnotes - 1; i >= 0; i--)
		if (notes[i].subid == subid)
			settle(&notes[i], false);
	for (int i = 0; i < nnotes; i++)
		if (notes[i].subid != subid)
			notes[kept++] = notes[i];
	nnotes = kept;
	abort_turns(subid);
	for (int i = 0; i < nopens; i++)
		if (opens[i].unreleased_in == subid)
		{
			opens[i].unreleased_in = InvalidSubTransactionId;
			tl_worker_set_unreleased(&opens[i].worker);
		}
}

static void
on_subxact(SubXactEvent event, SubTransactionId mySubid,
		   SubTransactionId parentSubid, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			for (int i = 0; i < nnotes; i++)
				if (notes[i].subid == mySubid)
					notes[i].subid = parentSubid;
			for (int i = 0; i < nturns; i++)
				if (turns[i].subid == mySubid)
					turns[i].subid = parentSubid;
			for (int i = 0; i < nopens; i++)
				if (opens[i].unreleased_in == mySubid)
					opens[i].unreleased_in = parentSubid;
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			abort_subtransaction(mySubid);
			break;
		default:
			break;
	}
}

/*
 * The session ends, perhaps in the middle of a transaction, and the server
 * would abort it later, when we cannot use shared memory any more.  Abort it
 * now, so that its rows are ready when we say so.
 */
static void
on_session_exit(int code, Datum arg)
{
	if (nnotes > 0 || nopens > 0 || nturns > 0)
		AbortOutOfAnyTransaction();
}
