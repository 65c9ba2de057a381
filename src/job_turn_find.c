/*-------------------------------------------------------------------------
 *
 * job_turn_find.c
 *	  Finding ready jobs in tables where jobs of the same key take turns.
 *
 * Rows are found without locking them.  Then the turns of their keys are
 * taken, those that can be had; and then, with a new snapshot, each row is
 * locked if it is the first of its key and none of that key is claimed.  In
 * this order: the claimer that had the turn before has ended by then, and what
 * it did is seen.
 *
 * What does not stand this test was found by an outdated hint, an old
 * snapshot, or is locked by somebody else.  Its key is looked up once more.
 *
 * Locks: none of ours while statements run.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "job_finish.h"
#include "job_turn_find.h"
#include "job_wait.h"
#include "job_xact.h"
#include "miscadmin.h"
#include "utils/datum.h"

/* Rows that are fetched at a time, at most. */
#define TL_FETCH		1000

/*
 * Where nothing is left behind a position, a key with many rows in front
 * would be gone through by each claim.  After so many rows that could not be
 * handed out it goes from key to key.
 */
#define TL_PASSED		1000

/* Turns on offer that are looked at, at least, to find those in front. */
#define TL_OFFERED		64

/* Turns that are looked after by each claim, and by one that found nothing. */
#define TL_LOOK_AFTER	8
#define TL_LOOK_HARD	1024

static int64
remaining(const TlTurnSearch *search)
{
	return search->batch - search->rows->n;
}

static void
give_up(TlTurnSearch *search, const TlTurnRow *row, TlTurnReason reason)
{
	if (!search->sees_all)
		reason = TL_TURN_UNKNOWN;
	if (tl_turn_give_up(search->info, row, reason, search->sees_rows))
		tl_job_wake(search->info->relation);
	if (!row->ours)
		tl_job_give_up_turn(search->info->relation, row->hash);
}

/* Note the turns among rows that were taken; this cannot fail. */
static void
note_taken(TlTurnSearch *search, const TlTurnRow *rows, int n)
{
	for (int i = 0; i < n; i++)
		if (rows[i].taken && rows[i].hash != 0)
			tl_job_note_turn(search->info->relation, rows[i].hash, false);
}

static int
compare_hashes(const void *a, const void *b)
{
	const TlTurnRow *x = a;
	const TlTurnRow *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static TlTurnRow *
find_by_hash(TlTurnRow *rows, int n, uint64 hash)
{
	TlTurnRow	wanted = {.hash = hash};

	return bsearch(&wanted, rows, n, sizeof(TlTurnRow), compare_hashes);
}

/*
 * Rows, from one on, have been locked.  Leave out those of a key whose turn we
 * do not have, as they have just got another; and set those whose attempts are
 * used up to failed.  Of the rows that were asked for, id_known is left to
 * those that are not among them, and "taken" to those of them that may be
 * tried again.
 */
static void
settle_locked(TlTurnSearch *search, TlTurnRow *asked, int n, int from)
{
	TlJobRows  *rows = search->rows;
	TlJobRows	used_up = {0};
	int			kept = from;
	int64		failed;

	used_up.rows = MemoryContextAllocHuge(CurrentMemoryContext,
										  sizeof(TlJobRow) * (rows->n + 1));
	for (int i = from; i < rows->n; i++)
	{
		TlJobRow   *row = &rows->rows[i];
		TlTurnRow  *turn = row->turn == 0 ? NULL :
		find_by_hash(asked, n, row->turn);

		if (row->turn != 0 && turn == NULL)
			continue;
		if (row->used_up)
			used_up.rows[used_up.n++] = *row;
		else
		{
			if (turn)
				turn->id_known = false;
			rows->rows[kept++] = *row;
		}
	}
	rows->n = kept;
	if (used_up.n > 0)
	{
		tl_job_note_freed(search->info, used_up.rows, used_up.n);
		failed = tl_job_set(search->info, TL_CHANGE_USED_UP, search->sid,
							&used_up, NULL);
		for (int i = 0; i < used_up.n && failed > 0; i++)
			if (used_up.rows[i].turn != 0)
				find_by_hash(asked, n, used_up.rows[i].turn)->fresh = true;
	}
	pfree(used_up.rows);
}

/* Look up the keys of rows that could not be had; returns how many are left. */
static int
look_up(TlTurnSearch *search, TlTurnRow *rows, int n)
{
	bool	   *claimed = palloc(sizeof(bool) * n);
	int			left = 0;

	tl_turn_heads(search->info, rows, n, claimed);
	for (int i = 0; i < n; i++)
		if (claimed[i])
			give_up(search, &rows[i], TL_TURN_BUSY);
		else if (!rows[i].id_known)
			give_up(search, &rows[i], TL_TURN_EMPTY);
		else
			rows[left++] = rows[i];
	pfree(claimed);
	return left;
}

/* Lock the rows whose turns were taken, as far as they may be handed out. */
static void
lock_taken(TlTurnSearch *search, const TlTurnRow *found, int nfound)
{
	TlTurnRow  *asked = MemoryContextAllocHuge(CurrentMemoryContext,
											   sizeof(TlTurnRow) * (nfound + 1));
	Datum	   *ids = MemoryContextAllocHuge(CurrentMemoryContext,
											 sizeof(Datum) * (nfound + 1));
	int			n = 0;
	int			nids = 0;

	for (int i = 0; i < nfound; i++)
		if (found[i].taken)
		{
			ids[nids++] = found[i].id;
			if (found[i].hash != 0)
			{
				asked[n] = found[i];
				asked[n++].fresh = true;
			}
		}

	while (nids > 0)
	{
		int			before = search->rows->n;
		int			left = 0;

		CHECK_FOR_INTERRUPTS();
		qsort(asked, n, sizeof(TlTurnRow), compare_hashes);
		for (int i = 0; i < n; i++)
			asked[i].again = !asked[i].fresh;
		for (int i = 0; i < n; i++)
			asked[i].fresh = false;
		tl_turn_verify(search->info, ids, nids, search->rows);
		settle_locked(search, asked, n, before);

		for (int i = 0; i < n; i++)
			if (!asked[i].id_known)
				continue;
			else if (asked[i].again && !asked[i].fresh)
				give_up(search, &asked[i], TL_TURN_REST);
			else
				asked[left++] = asked[i];
		n = left > 0 ? look_up(search, asked, left) : 0;
		for (nids = 0; nids < n; nids++)
			ids[nids] = asked[nids].id;
	}
	pfree(asked);
	pfree(ids);
}

/*
 * Turns on offer
 */

static int
compare_ids(const void *a, const void *b, void *arg)
{
	TlKeyType  *type = arg;

	return DatumGetInt32(FunctionCall2Coll(&type->compare,
										   type->stamp.collation,
										   ((const TlTurnRow *) a)->id,
										   ((const TlTurnRow *) b)->id));
}

/* Find the first rows of those whose are not known; returns how many have one. */
static int
find_heads(TlTurnSearch *search, TlTurnRow *rows, int n)
{
	TlTurnRow  *unknown = palloc(sizeof(TlTurnRow) * n);
	bool	   *claimed = palloc(sizeof(bool) * n);
	int			nunknown = 0;
	int			left = 0;

	for (int i = 0; i < n; i++)
		if (rows[i].id_known)
			rows[left++] = rows[i];
		else
			unknown[nunknown++] = rows[i];
	if (nunknown > 0)
		tl_turn_heads(search->info, unknown, nunknown, claimed);
	for (int i = 0; i < nunknown; i++)
	{
		if (search->sees_all)
			tl_turn_found(search->info, &unknown[i], claimed[i]);
		if (unknown[i].id_known && !claimed[i])
			rows[left++] = unknown[i];
	}
	pfree(unknown);
	pfree(claimed);
	return left;
}

void
tl_turn_find_offered(TlTurnSearch *search, bool hard)
{
	TlJobTableInfo *info = search->info;
	TlTurnRow  *rows;
	uint64	   *freed;
	int			nfreed;
	int			max;
	int			n;

	if (!hard)
		tl_turn_settle_prepared(info);
	freed = tl_job_freed_turns(info->relation, &nfreed);
	if (!search->use_position)
	{
		tl_turn_try(info, freed, nfreed);
		return;
	}
	n = tl_turn_look_after(info, hard ? TL_LOOK_HARD : TL_LOOK_AFTER);
	if (hard)
	{
		if (n == 0)
			return;
		nfreed = 0;
	}
	max = (int) Min(Max(remaining(search) + TL_OFFERED / 4, TL_OFFERED),
					TL_FETCH);
	while (remaining(search) > 0)
	{
		int			before = search->rows->n;

		n = tl_turn_offered(info, freed, nfreed, search->call, &rows, max);
		if (n == 0)
			break;
		n = find_heads(search, rows, n);
		qsort_arg(rows, n, sizeof(TlTurnRow), compare_ids, &info->key);
		n = Min(n, remaining(search));
		tl_job_reserve_turns(n);
		tl_turn_take_offered(info, rows, n, search->call);
		note_taken(search, rows, n);
		lock_taken(search, rows, n);
		if (search->rows->n == before)
			break;
		nfreed = 0;
	}
}

/*
 * Going through the rows
 */

/* A cursor, and the rows that were fetched from it. */
typedef struct TlTurnWalk
{
	TlTurnSearch *search;
	Portal		portal;
	SPITupleTable *fetched;
	TlTurnRow  *rows;
	int			n;
	int			next;			/* of the rows, to be looked at */
	int			size;			/* to be fetched */
	int			passed;			/* rows whose turn has not come */
	bool		from_key_to_key;
} TlTurnWalk;

static void
begin_walk(TlTurnWalk *walk, TlTurnSearch *search, const TlJobFind *find)
{
	memset(walk, 0, sizeof(TlTurnWalk));
	walk->search = search;
	walk->portal = tl_turn_open(search->info, find);
	walk->size = (int) Min(remaining(search) + 3, TL_FETCH);
	walk->from_key_to_key = search->use_position ||
		search->info->turn_greater == NULL;
}

static void
end_walk(TlTurnWalk *walk)
{
	if (walk->fetched)
		SPI_freetuptable(walk->fetched);
	SPI_cursor_close(walk->portal);
}

/* See to it that there are rows to be looked at; false when there are none. */
static bool
fetch_more(TlTurnWalk *walk)
{
	TlJobTableInfo *info = walk->search->info;
	int			level;

	if (walk->next < walk->n)
		return true;
	if (walk->passed > TL_PASSED && !walk->from_key_to_key)
	{
		SPI_cursor_close(walk->portal);
		walk->portal = tl_turn_open_heads(info, remaining(walk->search));
		walk->from_key_to_key = true;
	}
	if (walk->fetched)
	{
		SPI_freetuptable(walk->fetched);
		pfree(walk->rows);
	}
	level = tl_job_begin_path(info);
	SPI_cursor_fetch(walk->portal, true, walk->size);
	tl_job_end_path(level);
	walk->fetched = SPI_tuptable;
	walk->n = (int) SPI_processed;
	walk->next = 0;
	walk->size = Min(walk->size * 2, TL_FETCH);
	walk->rows = palloc(sizeof(TlTurnRow) * (walk->n + 1));
	for (int i = 0; i < walk->n; i++)
	{
		TlTurnRow  *row = &walk->rows[i];
		bool		isnull;

		row->id = SPI_getbinval(walk->fetched->vals[i],
								walk->fetched->tupdesc, 1, &isnull);
		if (tl_point_needs_detoast(&info->key, row->id))
			row->id = PointerGetDatum(PG_DETOAST_DATUM(row->id));
		row->id_known = true;
		row->value = SPI_getbinval(walk->fetched->vals[i],
								   walk->fetched->tupdesc, 2, &isnull);
		row->hash = tl_turn_hash(info, &row->value, isnull);
	}
	return walk->n > 0;
}

static void
count_passed(TlTurnWalk *walk, int n)
{
	for (int i = 0; i < n; i++)
		walk->passed += !walk->rows[walk->next + i].taken;
	walk->next += n;
}

bool
tl_turn_find_ready(TlTurnSearch *search, const TlJobFind *find, Datum *last)
{
	TlJobTableInfo *info = search->info;
	TlTurnWalk	walk;
	TlPoint		point;
	bool		any = false;

	search->stopped = false;
	begin_walk(&walk, search, find);
	while (remaining(search) > 0 && !search->stopped && fetch_more(&walk))
	{
		TlTurnRow  *rows = walk.rows + walk.next;
		int			n = walk.n - walk.next;
		int			done;

		tl_job_reserve_turns(n);
		done = tl_turn_take(info, rows, n, remaining(search), search->call,
							search->use_position);
		note_taken(search, rows, done);
		if (done == 0)
		{
			tl_turn_make_room(info, n);
			continue;
		}
		*last = datumCopy(rows[done - 1].id, info->key.byval, info->key.len);
		any = true;
		lock_taken(search, rows, done);
		count_passed(&walk, done);
		if (search->in_steps && walk.passed > TL_PASSED)
		{
			/* one that is too long cannot be gone on from */
			tl_point_set(&point, &info->key, *last);
			search->stopped = point.known;
		}
	}
	end_walk(&walk);
	return any;
}

/*
 * For those who wait
 */

static void
init_search(TlTurnSearch *search, TlJobTableInfo *info, bool use_position)
{
	memset(search, 0, sizeof(TlTurnSearch));
	search->info = info;
	search->rows = palloc0(sizeof(TlJobRows));
	search->batch = 1;
	search->use_position = use_position;
	search->sees_rows = !tl_job_row_security(info);
	search->sees_all = search->sees_rows && !IsolationUsesXactSnapshot();
	tl_turn_settle_prepared(info);
}

static bool
any_free(TlJobTableInfo *info, const TlTurnRow *rows, int n)
{
	Datum	   *ids = palloc(sizeof(Datum) * (n + 1));
	int			nids = 0;

	for (int i = 0; i < n; i++)
		if (rows[i].taken)
			ids[nids++] = rows[i].id;
	return nids > 0 && tl_turn_any_free(info, ids, nids);
}

bool
tl_turn_is_ready(TlJobTableInfo *info, const TlJobFind *find,
				 bool use_position)
{
	TlTurnSearch search;
	TlTurnWalk	walk;
	bool		found = false;

	init_search(&search, info, use_position);
	begin_walk(&walk, &search, find);
	while (!found && fetch_more(&walk))
	{
		tl_turn_see(info, walk.rows, walk.n);
		found = any_free(info, walk.rows, walk.n);
		count_passed(&walk, walk.n);
	}
	end_walk(&walk);
	return found;
}

bool
tl_turn_is_offered(TlJobTableInfo *info)
{
	TlTurnSearch search;
	TlTurnRow  *rows;
	int			n;

	init_search(&search, info, true);
	(void) tl_turn_look_after(info, TL_LOOK_HARD);
	n = tl_turn_offered(info, NULL, 0, 0, &rows, TL_FETCH);
	if (n == 0)
		return false;
	n = find_heads(&search, rows, n);
	for (int i = 0; i < n; i++)
		rows[i].taken = true;
	return any_free(info, rows, n);
}
