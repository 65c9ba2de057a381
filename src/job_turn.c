/*-------------------------------------------------------------------------
 *
 * job_turn.c
 *	  Turns: which values of the key column are being handed out, and which
 *	  have ready rows that no claimer comes across.
 *
 * A claimer takes the turn of a value before it looks, with a new snapshot,
 * whether a row of that value is claimed and which of them is the first; it
 * has the turn until its transaction has ended.  So of two claimers the
 * second sees what the first has done.
 *
 * Claimers start at a position, behind which rows remain whose turn had not
 * come.  Their values are kept, and offered to the next claimer once the turn
 * comes free: when the job that was ahead is finished, fails or is given back,
 * or when a claim is undone.  Nobody walks over the rows themselves again.
 * What comes free without our hearing of it (a row that was deleted, or set by
 * hand) is found because values are tried again after TL_HELD.
 *
 * Values go by a hash.  Two values that have the same one share a turn, which
 * can only delay jobs.
 *
 * Locks: the lock of one job table's entry, under which nothing is allocated,
 * read or compared by a type's functions.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "clock.h"
#include "common/hashfn.h"
#include "compat.h"
#include "job_turn.h"
#include "job_turns.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/procarray.h"

/* A value whose job is out is tried again after so long, without a reason. */
#define TL_HELD		(1000 * 1000)

/* And one whose first row is locked by others, or not due. */
#define TL_RESTS	(50 * 1000)

#define TL_LEAST_CAPACITY	64

/* Prepared transactions that one call asks after. */
#define TL_PREPARED		8

uint64
tl_turn_hash(TlJobTableInfo *info, Datum *value, bool isnull)
{
	uint64		hash;

	if (isnull)
		return 0;
	if (tl_point_needs_detoast(&info->turn_type, *value))
		*value = PointerGetDatum(PG_DETOAST_DATUM(*value));

	/* seeded, so that nobody can make values that have the same one */
	hash = DatumGetUInt64(FunctionCall2Coll(&info->turn_hash,
											info->turn_type.stamp.collation,
											*value,
											Int64GetDatum(PgStartTime)));
	return hash != 0 ? hash : 1;
}

static void
own(TlTurns *turns, TlTurn *turn, TlTurnRow *row, uint64 call)
{
	int			me = tl_my_procno() + 1;

	tl_turns_withdraw(turns, turn);
	row->taken = true;
	row->ours = turn->owner == me;
	row->version = turn->version;
	turns->owned += turn->owner == 0;
	turn->owner = me;
	turn->call = call;
	turn->head.known = false;
	turn->rests = false;
}

static void
disown(TlTurns *turns, TlTurn *turn)
{
	turn->owner = 0;
	turn->call = 0;
	turns->owned--;
}

static void
pass_by(TlJobTableInfo *info, TlTurn *turn, const TlTurnRow *row)
{
	if (!turn->passed)
		tl_point_set(&turn->head, &info->key, row->id);
	turn->passed = true;
	turn->version++;
}

static TlJobTable *
enter(TlJobTableInfo *info)
{
	TlJobTable *table = tl_position_enter(info);

	if (unlikely(table->turns.forget))
		tl_turns_forget(&table->turns);
	table->turns.positions = info->keyed;
	return table;
}

static TlJobTable *
lock(Oid relation)
{
	TlJobTable *table = tl_position_lock(relation);

	if (table && unlikely(table->turns.forget))
		tl_turns_forget(&table->turns);
	return table;
}

/*
 * Room
 */

void
tl_turn_make_room(TlJobTableInfo *info, int n)
{
	TlJobTable *table = enter(info);
	int			capacity = table->turns.capacity;
	int			needed = table->turns.n + n;
	dsa_pointer memory;

	tl_position_unlock(table);
	if (needed <= capacity)
		return;
	needed = pg_nextpower2_32(Max(needed, TL_LEAST_CAPACITY));
	memory = tl_shmem_alloc_or_error(tl_turns_size(needed));

	table = enter(info);
	if (table->turns.capacity == capacity)
	{
		dsa_pointer old = table->turns.memory;

		tl_turns_move(&table->turns, memory, needed);
		tl_position_unlock(table);
		if (capacity > 0)
			tl_shmem_free(old, tl_turns_size(capacity));
		return;
	}
	tl_position_unlock(table);
	tl_shmem_free(memory, tl_turns_size(needed));
}

/*
 * Prepared transactions: nobody tells us when they end.
 */

/* Free the turns of one that has ended. */
static void
settle_prepared(TlJobTableInfo *info, TransactionId xid)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;

	for (int at = 0; at < turns->fresh; at++)
	{
		TlTurn	   *turn = tl_turns_place(turns, at);

		if (turn->hash == 0 || turn->prepared != xid)
			continue;
		turn->prepared = InvalidTransactionId;
		turns->owned--;
		turns->prepared--;
		if (turn->passed)
			tl_turns_offer(table, turn);
		else
			tl_turns_discard(turns, turn);
	}
	tl_position_unlock(table);
}

void
tl_turn_settle_prepared(TlJobTableInfo *info)
{
	TransactionId xids[TL_PREPARED];
	int			n = 0;
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;

	for (int at = 0; turns->prepared > 0 && at < turns->fresh; at++)
	{
		TlTurn	   *turn = tl_turns_place(turns, at);

		if (turn->hash == 0 || !TransactionIdIsValid(turn->prepared) ||
			(n > 0 && xids[n - 1] == turn->prepared))
			continue;
		xids[n++] = turn->prepared;
		if (n == TL_PREPARED)
			break;
	}
	tl_position_unlock(table);
	for (int i = 0; i < n; i++)
		if (!TransactionIdIsInProgress(xids[i]))
			settle_prepared(info, xids[i]);
}

/*
 * Claiming
 */

/*
 * Is the turn another's, or not to be tried for now?  One whose first row is
 * known to have been in the way may be tried when that is the row.
 */
static bool
is_barred(TlJobTableInfo *info, TlTurn *turn, const TlTurnRow *row,
		  uint64 call, TlTime now)
{
	if (TransactionIdIsValid(turn->prepared))
		return true;
	if (turn->owner != 0)
		return turn->owner != tl_my_procno() + 1 || turn->call == call;
	if (turn->held_until <= now)
		return false;
	if (turn->head.known && turn->rests)
	{
		TlPoint		id;

		tl_point_set(&id, &info->key, row->id);
		return !tl_point_same(&id, &turn->head);
	}
	return true;
}

int
tl_turn_take(TlJobTableInfo *info, TlTurnRow *rows, int n, int64 want,
			 uint64 call, bool note)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;
	TlTime		now = tl_now();
	int			i;

	for (i = 0; i < n && want > 0; i++)
	{
		TlTurnRow  *row = &rows[i];
		TlTurn	   *turn;

		row->taken = false;
		if (row->hash == 0)
		{
			row->taken = true;
			want--;
			continue;
		}
		turn = tl_turns_find(turns, row->hash);
		if (turn == NULL)
		{
			if (!tl_turns_have_room(turns, 1))
				break;
			turn = tl_turns_add(turns, row->hash, &info->turn_type, row->value);
		}
		else if (is_barred(info, turn, row, call, now))
		{
			if (note)
				pass_by(info, turn, row);
			continue;
		}
		own(turns, turn, row, call);
		want--;
	}
	tl_position_unlock(table);
	return i;
}

void
tl_turn_take_offered(TlJobTableInfo *info, TlTurnRow *rows, int n,
					 uint64 call)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;
	int			me = tl_my_procno() + 1;

	for (int i = 0; i < n; i++)
	{
		TlTurn	   *turn = tl_turns_find(turns, rows[i].hash);

		rows[i].taken = false;
		if (turn && (turn->owner == 0 || turn->owner == me) &&
			!TransactionIdIsValid(turn->prepared))
			own(turns, turn, &rows[i], call);
	}
	tl_position_unlock(table);
}

bool
tl_turn_give_up(TlJobTableInfo *info, const TlTurnRow *row,
				TlTurnReason reason, bool note)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;
	TlTurn	   *turn = tl_turns_find(turns, row->hash);
	bool		changed;
	bool		offered = false;

	if (turn == NULL || turn->owner != tl_my_procno() + 1)
	{
		tl_position_unlock(table);
		return false;
	}
	changed = turn->version != row->version;
	if (reason == TL_TURN_EMPTY && !changed)
		turn->passed = false;
	else if (note && reason != TL_TURN_EMPTY && reason != TL_TURN_UNKNOWN)
		turn->passed = true;

	/* what this transaction has claimed before stays ours */
	if (!row->ours)
	{
		disown(turns, turn);
		if (!turn->passed)
			tl_turns_discard(turns, turn);
		else if (reason == TL_TURN_REST)
		{
			turn->held_until = tl_now() + TL_RESTS;
			turn->rests = true;
			tl_point_set(&turn->head, &info->key, row->id);
		}
		else if (reason == TL_TURN_BUSY && !changed)
			turn->held_until = tl_now() + TL_HELD;
		else
		{
			tl_turns_offer(table, turn);
			offered = true;
		}
	}
	tl_position_unlock(table);
	return offered;
}

void
tl_turn_see(TlJobTableInfo *info, TlTurnRow *rows, int n)
{
	TlJobTable *table = tl_position_enter(info);
	TlTime		now = tl_now();

	for (int i = 0; i < n; i++)
	{
		TlTurn	   *turn = rows[i].hash == 0 ? NULL :
		tl_turns_find(&table->turns, rows[i].hash);

		rows[i].taken = turn == NULL ||
			!is_barred(info, turn, &rows[i], 0, now);
	}
	tl_position_unlock(table);
}

/*
 * Turns on offer
 */

/* Copy those that may be tried, or only count them. */
static int
copy_offered(TlJobTableInfo *info, const uint64 *freed, int nfreed,
			 uint64 call, TlTurn *copies, int max)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;
	int			me = tl_my_procno() + 1;
	int			n = 0;

	for (int i = 0; i < nfreed && n < max; i++)
	{
		TlTurn	   *turn = tl_turns_find(turns, freed[i]);

		if (turn == NULL || !turn->passed || !turn->value.known ||
			turn->offered ||
			(turn->owner != 0 && (turn->owner != me || turn->call == call)) ||
			TransactionIdIsValid(turn->prepared))
			continue;
		if (copies)
			copies[n] = *turn;
		n++;
	}
	if (turns->n > 0)
		for (int at = turns->first; at >= 0 && n < max;
			 at = tl_turns_place(turns, at)->behind)
		{
			if (copies)
				copies[n] = *tl_turns_place(turns, at);
			n++;
		}
	tl_position_unlock(table);
	return n;
}

int
tl_turn_offered(TlJobTableInfo *info, const uint64 *freed, int nfreed,
				uint64 call, TlTurnRow **found, int max)
{
	int			n = copy_offered(info, freed, nfreed, call, NULL, max);
	TlTurn	   *copies;
	TlTurnRow  *rows;

	if (n == 0)
		return 0;
	copies = palloc(sizeof(TlTurn) * n);
	n = copy_offered(info, freed, nfreed, call, copies, n);
	*found = rows = palloc(sizeof(TlTurnRow) * (n + 1));
	for (int i = 0; i < n; i++)
	{
		rows[i].hash = copies[i].hash;
		rows[i].value = tl_point_value(&copies[i].value, &info->turn_type);
		rows[i].id_known = copies[i].head.known;
		if (rows[i].id_known)
			rows[i].id = tl_point_value(&copies[i].head, &info->key);
		rows[i].taken = rows[i].ours = false;
		rows[i].version = copies[i].version;
	}
	pfree(copies);
	return n;
}

void
tl_turn_found(TlJobTableInfo *info, const TlTurnRow *row, bool claimed)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;
	TlTurn	   *turn = tl_turns_find(turns, row->hash);

	if (turn && turn->owner == 0 && turn->version == row->version)
	{
		if (claimed)
		{
			tl_turns_withdraw(turns, turn);
			turn->held_until = tl_now() + TL_HELD;
		}
		else if (row->id_known)
			tl_point_set(&turn->head, &info->key, row->id);
		else if (!TransactionIdIsValid(turn->prepared))
			tl_turns_discard(turns, turn);
	}
	tl_position_unlock(table);
}

int
tl_turn_look_after(TlJobTableInfo *info, int max)
{
	TlJobTable *table = enter(info);
	TlTurns    *turns = &table->turns;
	TlTime		now = tl_now();
	int			n = 0;

	max = Min(max, turns->n > 0 ? turns->fresh : 0);
	for (int i = 0; i < max; i++)
	{
		TlTurn	   *turn;

		if (turns->hand >= turns->fresh)
			turns->hand = 0;
		turn = tl_turns_place(turns, turns->hand++);
		if (turn->hash == 0 || turn->owner != 0 || turn->offered)
			continue;
		if (!TransactionIdIsValid(turn->prepared) && turn->held_until <= now)
		{
			tl_turns_offer(table, turn);
			n++;
		}
	}
	tl_position_unlock(table);
	return n;
}

bool
tl_turn_note_rows(TlJobTableInfo *info, const TlTurnRow *rows, int n,
				  bool now)
{
	bool		news = false;
	int			i = 0;

	while (i < n)
	{
		TlJobTable *table = enter(info);
		TlTurns    *turns = &table->turns;

		for (; i < n; i++)
		{
			TlTurn	   *turn = tl_turns_find(turns, rows[i].hash);

			if (turn && turn->passed && now)
				continue;
			if (turn == NULL)
			{
				if (!tl_turns_have_room(turns, 1))
					break;
				turn = tl_turns_add(turns, rows[i].hash, &info->turn_type,
						   rows[i].value);
				turn->held_until = tl_now() + TL_HELD;
			}
			turn->passed = true;
			turn->head.known = false;
			turn->version++;
			news = true;
			if (now && turn->owner == 0 &&
				!TransactionIdIsValid(turn->prepared))
				tl_turns_offer(table, turn);
		}
		tl_position_unlock(table);
		if (i < n)
			tl_turn_make_room(info, n - i);
	}
	return news;
}

void
tl_turn_try(TlJobTableInfo *info, const uint64 *freed, int n)
{
	TlJobTable *table = enter(info);

	for (int i = 0; i < n; i++)
	{
		TlTurn	   *turn = tl_turns_find(&table->turns, freed[i]);

		if (turn)
			turn->held_until = 0;
	}
	tl_position_unlock(table);
}

/*
 * Transaction end
 */

/* It has taken the turn. */
static void
end_taken(TlJobTable *table, TlTurn *turn, TlTurnEnd end)
{
	if (turn->owner != tl_my_procno() + 1)
		return;
	disown(&table->turns, turn);
	turn->passed = turn->passed || end != TL_TURN_COMMITTED;
	if (end == TL_TURN_PREPARED)
	{
		turn->prepared = GetTopTransactionIdIfAny();
		table->turns.owned++;
		table->turns.prepared++;
	}
	else if (end == TL_TURN_ABORTED)
		tl_turns_offer(table, turn);
	else if (turn->passed)
		turn->held_until = tl_now() + TL_HELD;
	else
		tl_turns_discard(&table->turns, turn);
}

/* A job of it is finished. */
static void
end_freed(TlJobTable *table, TlTurn *turn)
{
	turn->version++;

	/* who has it goes by the version */
	if (turn->owner != 0 || TransactionIdIsValid(turn->prepared))
		return;
	if (turn->passed)
		tl_turns_offer(table, turn);
	else
		tl_turns_discard(&table->turns, turn);
}

bool
tl_turn_end(const TlTurnNote *notes, int n, TlTurnEnd end)
{
	TlJobTable *table = lock(notes->relation);
	bool		wake = false;

	if (table == NULL)
		return false;
	for (int i = 0; i < n; i++)
	{
		const TlTurnNote *note = &notes[i];
		TlTurn	   *turn;

		/* undone things have set nothing free */
		if (note->hash == 0 || (note->freed && end != TL_TURN_COMMITTED))
			continue;
		wake = wake || note->freed || end == TL_TURN_ABORTED;
		turn = tl_turns_find(&table->turns, note->hash);
		if (turn == NULL)
			continue;
		if (note->freed)
			end_freed(table, turn);
		else
			end_taken(table, turn, end);
	}
	tl_position_unlock(table);
	return wake;
}
