/*-------------------------------------------------------------------------
 *
 * job_position.c
 *	  Where claimers of a job table start to look for ready rows.
 *
 * A queue's index begins with the entries of all jobs done so far, which stay
 * as long as an old snapshot may need them.  Claimers that walk over them
 * each time slow down with every job done.  So they start where the last one
 * stopped.  What became ready behind that position is kept as a small number
 * of islands, ranges that are looked at first: claims that were rolled back,
 * rows that were released, and what the look behind has found.
 *
 * Locks: one table's at a time, and no other of ours meanwhile.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "job_position.h"
#include "job_turns.h"
#include "miscadmin.h"

#define job_tables()	tl_shmem_table(TL_TABLE_JOB_TABLES)
#define unlock(table)	dshash_release_lock(job_tables(), table)

/* When memory is full, what was not used for so long is given up. */
#define TL_UNUSED		(INT64CONST(600) * 1000 * 1000)

static void sweep_unused(void);

void
tl_position_init(void)
{
	tl_shmem_define_table(TL_TABLE_JOB_TABLES, sizeof(TlJobTable),
						  sweep_unused);
}

static void
forget(TlJobTable *table)
{
	table->epoch = tl_shmem_next_serial();
	table->position.known = false;
	table->nislands = 0;
}

/* Begin anew with a table that was truncated, rewritten or set otherwise. */
static void
reset(TlJobTable *table, const TlJobStamp *stamp)
{
	table->stamp = *stamp;
	forget(table);
	memset(&table->look, 0, sizeof(table->look));
	table->next_lapse = 0;
	table->turns.forget = true;
}

TlJobTable *
tl_position_lock(Oid relation)
{
	TlKey		key;

	tl_key_init(&key, relation, "", 0);
	return dshash_find(job_tables(), &key, true);
}

void
tl_position_unlock(TlJobTable *table)
{
	unlock(table);
}

TlJobTable *
tl_position_enter(TlJobTableInfo *info)
{
	TlJobTable *table = tl_position_lock(info->relation);

	if (unlikely(table == NULL))
	{
		TlKey		key;
		bool		found;

		tl_key_init(&key, info->relation, "", 0);
		tl_shmem_make_room(TL_TABLE_JOB_TABLES);
		table = dshash_find_or_insert(job_tables(), &key, &found);
		if (!found)
		{
			tl_shmem_count_entry(TL_TABLE_JOB_TABLES, 1);
			table->version = 0;
			memset(table->events, 0, sizeof(table->events));
			tl_job_line_init(&table->line);
			memset(&table->turns, 0, sizeof(table->turns));
			reset(table, &info->stamp);
		}
	}
	if (unlikely(memcmp(&table->stamp, &info->stamp, sizeof(TlJobStamp)) != 0))
		reset(table, &info->stamp);
	return table;
}

void
tl_position_forget_locked(TlJobTable *table)
{
	forget(table);
}

static void
copy_place(const TlJobTable *table, TlJobPlace *place)
{
	place->epoch = table->epoch;
	place->version = table->version;
	place->position = table->position;
	place->nislands = table->nislands;
	memcpy(place->islands, table->islands,
		   sizeof(TlIsland) * table->nislands);
	place->known = table->look.known;
	place->look_next = table->look.next;
	place->next_lapse = table->next_lapse;
	place->waiters = table->line.waiting > 0;
}

/* A worker may lapse at that time; somebody may have to wait for it. */
static void
note_lapse(TlJobTable *table, TlTime lapse)
{
	if (lapse >= table->next_lapse)
		return;
	table->next_lapse = lapse;
	tl_job_line_poke(&table->line);
}

void
tl_position_read(TlJobTableInfo *info, TlTime lapse, TlJobPlace *place)
{
	TlJobTable *table = tl_position_enter(info);

	table->used = tl_now();
	note_lapse(table, lapse);
	copy_place(table, place);
	unlock(table);
}

void
tl_position_advance(TlJobTableInfo *info, const TlJobPlace *place,
					const TlPoint *last)
{
	TlPoint		position = place->position;
	uint64		version = place->version;

	for (;;)
	{
		TlJobTable *table;

		if (last->known && position.known &&
			tl_point_compare(last, &position, &info->key) <= 0)
			return;
		table = tl_position_enter(info);
		if (table->epoch != place->epoch)
		{
			unlock(table);
			return;
		}
		if (!last->known)
		{
			/* too long to be kept */
			if (table->position.known)
				forget(table);
			unlock(table);
			return;
		}
		if (table->version == version)
		{
			table->position = *last;
			table->version++;
			unlock(table);
			return;
		}
		position = table->position;
		version = table->version;
		unlock(table);
	}
}

static int
find_island(const TlJobTable *table, uint64 serial)
{
	for (int i = 0; i < table->nislands; i++)
		if (table->islands[i].serial == serial)
			return i;
	return -1;
}

void
tl_position_island_done(TlJobTableInfo *info, uint64 serial,
						const TlPoint *last)
{
	TlJobTable *table = tl_position_enter(info);
	int			i = find_island(table, serial);

	if (i >= 0)
	{
		TlIsland   *island = &table->islands[i];

		if (last && last->known)
		{
			island->range.lo = *last;
			island->behind_lo = true;
			island->serial = tl_shmem_next_serial();
		}
		else if (!last)
			memmove(island, island + 1,
					sizeof(TlIsland) * (--table->nislands - i));
	}
	unlock(table);
}

void
tl_position_add_island(Oid relation, const TlRange *range,
					   const TlKeyStamp *stamp)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table == NULL)
		return;
	if (table->position.known)
	{
		if (!tl_range_known(range) || table->nislands == TL_ISLANDS ||
			!tl_stamp_same(&table->stamp.key, stamp))
			forget(table);
		else
		{
			TlIsland   *island = &table->islands[table->nislands++];

			island->serial = tl_shmem_next_serial();
			island->behind_lo = false;
			island->range = *range;
		}
	}
	else
	{
		/* a claimer that has started already must not set the position */
		table->epoch = tl_shmem_next_serial();
	}
	unlock(table);
}

void
tl_position_forget(Oid relation)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table == NULL)
		return;
	forget(table);
	unlock(table);
}

void
tl_position_forget_all(void)
{
	dshash_seq_status status;
	TlJobTable *table;

	dshash_seq_init(&status, job_tables(), true);
	while ((table = dshash_seq_next(&status)) != NULL)
		if (table->key.database == MyDatabaseId)
		{
			forget(table);
			tl_job_line_call(&table->line);
		}
	dshash_seq_term(&status);
}

void
tl_position_note_lapse(Oid relation, TlTime lapse)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table == NULL)
		return;
	note_lapse(table, lapse);
	unlock(table);
}

bool
tl_position_begin_lapses(Oid relation, TlTime now)
{
	TlJobTable *table = tl_position_lock(relation);
	bool		due;

	if (table == NULL)
		return false;
	due = table->next_lapse <= now;
	if (due)
		table->next_lapse = TL_NEVER;
	unlock(table);
	return due;
}

bool
tl_position_begin_look(TlJobTableInfo *info, TlTime until, TlLookState *look,
					   TlJobPlace *place)
{
	TlJobTable *table = tl_position_enter(info);
	bool		mine = table->look.busy_until <= tl_now();

	if (mine)
	{
		table->look.busy_until = until;
		*look = table->look;
		copy_place(table, place);
	}
	unlock(table);
	return mine;
}

void
tl_position_end_look(TlJobTableInfo *info, TlLookState *look)
{
	TlJobTable *table = tl_position_enter(info);

	/* after a reset, or if it took too long, somebody else may be at it */
	if (table->look.busy_until == look->busy_until)
	{
		look->busy_until = 0;
		table->look = *look;
	}
	unlock(table);
}

int
tl_position_island_room(TlJobTableInfo *info)
{
	TlJobTable *table = tl_position_enter(info);
	int			room = TL_ISLANDS - table->nislands;

	unlock(table);
	return room;
}

void
tl_position_count(Oid relation, TlJobEvent event, int64 n)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table == NULL)
		return;
	table->events[event] += n;
	unlock(table);
}

void
tl_position_visit(TlJobTableVisitor visit, void *arg)
{
	dshash_seq_status status;
	TlJobTable *table;

	dshash_seq_init(&status, job_tables(), false);
	while ((table = dshash_seq_next(&status)) != NULL)
		if (table->key.database == MyDatabaseId)
			visit(table, arg);
	dshash_seq_term(&status);
}

/* Memory is full: give up hints that nobody has needed lately. */
static void
sweep_unused(void)
{
	TlTime		now = tl_now();
	dshash_seq_status status;
	TlJobTable *table;

	dshash_seq_init(&status, job_tables(), true);
	while ((table = dshash_seq_next(&status)) != NULL)
		if (table->used < now - TL_UNUSED && table->line.waiting == 0 &&
			table->turns.owned == 0)
		{
			if (DsaPointerIsValid(table->turns.memory))
				tl_shmem_free(table->turns.memory,
							  tl_turns_size(table->turns.capacity));
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_JOB_TABLES, -1);
		}
	dshash_seq_term(&status);
}
