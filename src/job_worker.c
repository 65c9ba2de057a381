/*-------------------------------------------------------------------------
 *
 * job_worker.c
 *	  Workers: the lease that says whether one is alive, and what is known of
 *	  the rows that it may hold.
 *
 * The count of rows is raised before a claim updates the table and lowered
 * when the transaction that finished them has committed, so it is never too
 * small.  It may be too large, when the application deletes rows for
 * instance: who looks and finds fewer counts them and says so.  Only a sid
 * that was found in the table, or that called when the table had not been
 * looked through yet, may have more rows than were counted ("inexact").
 *
 * Locks: one worker's at a time, and no other of ours meanwhile.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "compat.h"
#include "job_worker.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"

#define workers_table()	tl_shmem_table(TL_TABLE_WORKERS)
#define unlock(worker)	dshash_release_lock(workers_table(), worker)

/* How long a dead worker rests whose rows are all locked. */
#define TL_REST			(50 * 1000)

/* How long the record of a lapsed worker without rows is of interest. */
#define TL_REMEMBER		(INT64CONST(3600) * 1000 * 1000)

/* The same, when memory is full. */
#define TL_REMEMBER_FULL	(INT64CONST(5) * 1000 * 1000)

/* How often a backend looks for such records then, at most. */
#define TL_SWEEP_PAUSE		(100 * 1000)

static void sweep_lapsed(void);

void
tl_worker_init(void)
{
	tl_shmem_define_table(TL_TABLE_WORKERS, sizeof(TlWorker), sweep_lapsed);
}

static bool
is_live(const TlWorker *worker, TlTime now)
{
	return worker->open > 0 || worker->expires > now;
}

/* Find or make a worker's record, and lock it. */
static TlWorker *
enter(const TlKey *key, bool *found)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	/* one that is known needs no room */
	*found = worker != NULL;
	if (!*found)
	{
		tl_shmem_make_room(TL_TABLE_WORKERS);
		worker = dshash_find_or_insert(workers_table(), key, found);
	}
	if (!*found)
	{
		Size		rest = offsetof(TlWorker, role);

		tl_shmem_count_entry(TL_TABLE_WORKERS, 1);
		memset((char *) worker + rest, 0, sizeof(TlWorker) - rest);
		worker->since = worker->renewed_at = GetCurrentTimestamp();
	}
	return worker;
}

static TlTime
ttl_of(const TlWorker *worker)
{
	if (worker->ttl != 0)
		return worker->ttl;
	return worker->table_ttl != 0 ? worker->table_ttl :
		(TlTime) tl_job_ttl * 1000;
}

static void
restart(TlWorker *worker, TlTime now)
{
	worker->expires = tl_time_add(now, ttl_of(worker));
	worker->lapse_noted = false;
	worker->renewed_at = GetCurrentTimestamp();
}

static void
copy_state(const TlWorker *worker, TlWorkerState *state)
{
	state->expires = worker->expires;
	state->claimed = worker->claimed;
	state->inexact = worker->inexact;
	state->shared_told = worker->shared_told;
	state->version = worker->version;
	state->stamp = worker->stamp;
	state->range = worker->range;
}

const TlRange *
tl_worker_range(const TlWorkerState *state, const TlKeyType *type)
{
	return tl_range_known(&state->range) &&
		tl_stamp_same(&state->stamp, &type->stamp) ? &state->range : NULL;
}

void
tl_worker_call(const TlKey *key, TlWorkerCall call, TlTime ttl,
			   TlTime table_ttl, bool open, TlWorkerState *state)
{
	bool		found;
	TlWorker   *worker = enter(key, &found);
	TlTime		before = worker->expires;
	TlTime		now = tl_now();

	state->live = found && is_live(worker, now);
	if (!found)
		worker->inexact = true;
	else if (!state->live && !worker->lapse_noted)
	{
		worker->lapse_noted = true;
		worker->shared_told = false;
		worker->lapse_unseen = true;
		worker->lapse_unreleased = true;
	}

	worker->role = GetUserId();
	state->fresh = !found;
	state->lapsed = false;
	if (ttl != 0)
		worker->ttl = ttl;
	worker->table_ttl = table_ttl;
	switch (call)
	{
		case TL_CALL_RENEW:
			state->lapsed = worker->lapse_unseen;
			worker->lapse_unseen = false;
			if (!state->lapsed)
				restart(worker, now);
			break;
		case TL_CALL_CLAIM:
			state->lapsed = worker->lapse_unreleased;
			worker->lapse_unreleased = false;
			restart(worker, now);
			break;
		case TL_CALL_RETURN:
			restart(worker, now);
			break;
	}
	if (open)
		worker->open++;
	copy_state(worker, state);
	state->sooner = worker->expires < before;
	unlock(worker);
}

bool
tl_worker_look(const TlKey *key, TlWorkerState *state)
{
	TlWorker   *worker = dshash_find(workers_table(), key, false);

	if (worker == NULL)
		return false;
	copy_state(worker, state);
	unlock(worker);
	return true;
}

bool
tl_worker_raise(const TlKey *key, int64 n, const TlRange *range,
				int64 pending, TlRange *replaced, const TlKeyType *type)
{
	TlRange		wider;
	uint64		version = 0;

	/* compare without the lock, and write if nobody else has meanwhile */
	for (bool compared = false;; compared = true)
	{
		bool		found;
		TlWorker   *worker = enter(key, &found);
		bool		replace;

		if (!found)
		{
			/* cannot be: it has an open transaction.  Be on the safe side. */
			worker->inexact = true;
			worker->expires = tl_time_add(tl_now(), ttl_of(worker));
		}
		replace = pending > 0 && worker->claimed <= pending &&
			!worker->inexact;
		if (replace)
		{
			*replaced = worker->range;
			if (!tl_stamp_same(&worker->stamp, &type->stamp))
				tl_range_forget(replaced);
			worker->stamp = type->stamp;
			worker->range = *range;
			worker->changed = tl_now();
		}
		else if (!tl_worker_may_hold(worker) ||
				 !tl_stamp_same(&worker->stamp, &type->stamp))
		{
			bool		unknown = tl_worker_may_hold(worker);

			worker->stamp = type->stamp;
			worker->range = *range;
			if (unknown)
				tl_range_forget(&worker->range);
		}
		else if (compared && worker->version == version)
			worker->range = wider;
		else if (tl_range_known(&worker->range))
		{
			wider = worker->range;
			version = worker->version;
			unlock(worker);
			tl_range_widen(&wider, range, type);
			continue;
		}
		worker->claimed += n;
		worker->version++;
		unlock(worker);
		return replace;
	}
}

bool
tl_worker_counted(const TlKey *key, uint64 version, int max_open, int64 n)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);
	bool		unchanged;

	if (worker == NULL)
		return false;
	unchanged = worker->version == version && worker->open <= max_open;
	if (unchanged)
	{
		worker->claimed = n;
		worker->inexact = false;
		worker->version++;
		worker->changed = tl_now();
	}
	unlock(worker);
	return unchanged;
}

bool
tl_worker_found(const TlKey *key, const TlPoint *id, const TlKeyType *type,
				TlTime seen, TlTime table_ttl, TlTime *expires)
{
	TlRange		row = {*id, *id};
	TlRange		before;
	TlRange		wider;
	uint64		version = 0;

	for (bool compared = false;; compared = true)
	{
		bool		found;
		TlWorker   *worker = enter(key, &found);
		bool		changed = worker->changed >= seen;

		if (!found)
		{
			worker->table_ttl = table_ttl;
			worker->expires = tl_time_add(tl_now(), ttl_of(worker));
		}
		*expires = worker->expires;
		if (!tl_worker_may_hold(worker) && changed)
		{
			unlock(worker);
			return false;
		}
		if (!tl_worker_may_hold(worker))
		{
			worker->stamp = type->stamp;
			worker->range = row;
		}
		else if (!tl_range_known(&worker->range) ||
				 !tl_stamp_same(&worker->stamp, &type->stamp))
		{
			/* it is looked for everywhere anyway */
			unlock(worker);
			return true;
		}
		else if (compared && worker->version == version)
			worker->range = wider;
		else
		{
			before = wider = worker->range;
			version = worker->version;
			unlock(worker);
			tl_range_widen(&wider, &row, type);
			if (tl_point_same(&wider.lo, &before.lo) &&
				tl_point_same(&wider.hi, &before.hi))
				return true;
			if (changed)
				return false;
			continue;
		}
		if (!OidIsValid(worker->role))
		{
			/* it never calls, but seems to be about */
			worker->expires = tl_time_add(tl_now(), ttl_of(worker));
			*expires = worker->expires;
		}
		worker->claimed++;
		worker->inexact = true;
		worker->version++;
		unlock(worker);
		return true;
	}
}

void
tl_worker_lower(const TlKey *key, int64 n)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	if (worker == NULL)
		return;
	worker->claimed = Max(worker->claimed - n, 0);
	worker->version++;
	worker->changed = tl_now();
	unlock(worker);
}

void
tl_worker_restore_range(const TlKey *key, const TlRange *range,
						const TlKeyStamp *stamp)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	if (worker == NULL)
		return;
	/* what others have claimed for the same sid may lie anywhere */
	if (worker->open <= 1)
		worker->range = *range;
	else
		tl_range_forget(&worker->range);
	worker->stamp = *stamp;
	worker->version++;
	unlock(worker);
}

void
tl_worker_lower_dead(const TlKey *key, int64 n, const TlRange *range,
					 const TlKeyStamp *stamp)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	if (worker == NULL)
		return;
	worker->claimed = Max(worker->claimed - n, 0);
	if (tl_range_known(range) && tl_range_known(&worker->range) &&
		tl_stamp_same(&worker->stamp, stamp) &&
		tl_point_same(&worker->range.lo, &range->lo))
		worker->range.lo = range->hi;
	worker->version++;
	worker->changed = tl_now();
	unlock(worker);
}

void
tl_worker_set_unreleased(const TlKey *key)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	if (worker == NULL)
		return;
	worker->lapse_unreleased = true;
	unlock(worker);
}

void
tl_worker_close(const TlKey *key, bool committed, bool unreleased,
				bool got_rows)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	if (worker == NULL)
		return;
	if (worker->open > 0)
		worker->open--;
	if (unreleased)
		worker->lapse_unreleased = true;

	/*
	 * In the same step as the transaction stops to keep it alive, or it could
	 * seem to have lapsed in between.
	 */
	if (committed)
		worker->expires = Max(worker->expires,
							  tl_time_add(tl_now(), ttl_of(worker)));
	if (committed && got_rows)
	{
		worker->got.procno = tl_my_procno();
		worker->got.pid = MyProcPid;
		worker->got.role = GetUserId();
	}
	unlock(worker);
}

bool
tl_worker_other_session(const TlKey *key, TlWorkerSession *session)
{
	TlWorker   *worker = dshash_find(workers_table(), key, false);

	if (worker == NULL)
		return false;
	*session = worker->got;
	unlock(worker);

	return session->pid != 0 && session->pid != MyProcPid &&
		BackendPidGetProc(session->pid) ==
		&ProcGlobal->allProcs[session->procno];
}

bool
tl_worker_tell_shared(const TlKey *key)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);
	bool		first;

	if (worker == NULL)
		return false;
	first = !worker->shared_told;
	worker->shared_told = true;
	unlock(worker);
	return first;
}

int
tl_worker_dead(Oid relation, TlKey *keys, int max, TlTime *next)
{
	TlTime		now = tl_now();
	dshash_seq_status status;
	TlWorker   *worker;
	int			n = 0;

	*next = TL_NEVER;
	dshash_seq_init(&status, workers_table(), true);
	while ((worker = dshash_seq_next(&status)) != NULL)
	{
		TlTime		when;

		/* one that has called in an open transaction may be about to claim */
		if (!tl_worker_may_hold(worker) && worker->open == 0)
		{
			if (worker->expires < now - TL_REMEMBER)
			{
				dshash_delete_current(&status);
				tl_shmem_count_entry(TL_TABLE_WORKERS, -1);
			}
			continue;
		}
		if (worker->key.database != MyDatabaseId ||
			worker->key.relation != relation)
			continue;

		if (worker->open > 0)
			when = tl_time_add(now, ttl_of(worker));
		else if (worker->expires > now)
			when = worker->expires;
		else
			when = Max(now, worker->look_again);
		if (when <= now && n < max)
			keys[n++] = worker->key;
		*next = Min(*next, when);
	}
	dshash_seq_term(&status);
	return n;
}

bool
tl_worker_is_dead(const TlKey *key, TlWorkerState *state)
{
	TlWorker   *worker = dshash_find(workers_table(), key, false);
	bool		dead;

	if (worker == NULL)
		return false;
	dead = !is_live(worker, tl_now()) && tl_worker_may_hold(worker);
	copy_state(worker, state);
	unlock(worker);
	return dead;
}

void
tl_worker_rest(const TlKey *key)
{
	TlWorker   *worker = dshash_find(workers_table(), key, true);

	if (worker == NULL)
		return;
	worker->look_again = tl_time_add(tl_now(), TL_REST);
	unlock(worker);
}

void
tl_worker_revive(const TlWorker *saved)
{
	TlWorker   *worker;
	bool		found;

	if (!tl_shmem_has_room(TL_TABLE_WORKERS))
		return;
	worker = dshash_find_or_insert(workers_table(), &saved->key, &found);
	if (!found)
		tl_shmem_count_entry(TL_TABLE_WORKERS, 1);
	*worker = *saved;
	worker->open = 0;
	worker->inexact = true;
	worker->changed = tl_now();
	tl_range_forget(&worker->range);
	memset(&worker->got, 0, sizeof(worker->got));
	unlock(worker);
}

void
tl_worker_visit(TlWorkerVisitor visit, void *arg)
{
	TlTime		now = tl_now();
	dshash_seq_status status;
	TlWorker   *worker;

	dshash_seq_init(&status, workers_table(), false);
	while ((worker = dshash_seq_next(&status)) != NULL)
		if (worker->key.database == MyDatabaseId)
			visit(worker, is_live(worker, now), arg);
	dshash_seq_term(&status);
}

/*
 * Memory is full: give up what is known of workers that lapsed a while ago.
 * Rows that they still hold are found in the table again by the look behind.
 */
static void
sweep_lapsed(void)
{
	static TlTime swept = 0;
	TlTime		now = tl_now();
	dshash_seq_status status;
	TlWorker   *worker;

	if (now < swept + TL_SWEEP_PAUSE)
		return;
	swept = now;
	dshash_seq_init(&status, workers_table(), true);
	while ((worker = dshash_seq_next(&status)) != NULL)
	{
		/* of one that only called nothing was ever seen */
		TlTime		keep = worker->claimed > 0 ? TL_REMEMBER :
			TL_REMEMBER_FULL;

		if (!is_live(worker, now) && worker->expires < now - keep)
		{
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_WORKERS, -1);
		}
	}
	dshash_seq_term(&status);
}
