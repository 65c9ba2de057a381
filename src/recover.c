/*-------------------------------------------------------------------------
 *
 * recover.c
 *	  The first look at a database after a start of the server.
 *
 * Leases that were given before a crash or failover may still run, and shared
 * memory knows nothing of them.  So nothing is granted in a database until
 * its page was read (page.c), and then as long as the page says: the grace.
 *
 * It is over when the last of those leases is, at the latest.  On the same
 * boot of the machine that is known by the clock.  After a reboot it is counted
 * from the start of the server, which came after the crash.  Where the page is
 * of another history, this server was a standby or was restored, and the
 * last writes may be missing: there it is as long as it can be, from the end of
 * the recovery, as the former primary may have given leases until then.
 *
 * That moment is noted by a process that the server starts when it comes and
 * that ends at once.  Before it has, or when there was no room for it, the
 * grace begins with the first look.
 *
 * Locks: one on the sequence tokenlock_lease, which one session has at a time.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "clock.h"
#include "compat.h"
#include "fence.h"
#include "miscadmin.h"
#include "page.h"
#include "postmaster/bgworker.h"
#include "promise.h"
#include "record.h"
#include "recover.h"
#include "storage/ipc.h"
#include "storage/lockdefs.h"

extern PGDLLEXPORT void tokenlock_note_recovered(Datum arg);

static void look(TlDatabase *database, Relation sequence);
static TlTime find_grace(const TlReservation *reservation);
static void report_grace(TlTime until);

void
tl_recover_init(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, "tokenlock end of recovery", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "tokenlock end of recovery", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "tokenlock", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "tokenlock_note_recovered", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

void
tokenlock_note_recovered(Datum arg)
{
	tl_shmem_note_recovered();
	proc_exit(0);
}

TlTime
tl_recover_grace_until(void)
{
	TlDatabase *database = tl_database();

	return pg_atomic_read_u32(&database->state) == TL_DATABASE_GRACE ?
		database->grace_until : 0;
}

void
tl_recover_now(TlDatabase *database)
{
	Relation	sequence;

	if (pg_atomic_read_u32(&database->state) == TL_DATABASE_GRACE &&
		tl_now() < database->grace_until)
		return;

	sequence = tl_page_open(TL_LEASE_SEQUENCE, ShareUpdateExclusiveLock);
	switch ((TlDatabaseState) pg_atomic_read_u32(&database->state))
	{
		case TL_DATABASE_UNKNOWN:
			look(database, sequence);
			break;
		case TL_DATABASE_GRACE:
			if (tl_now() < database->grace_until)
				break;
			/* what the page says is over; the next start need not wait again */
			tl_promise_renew();
			pg_atomic_write_u32(&database->state, TL_DATABASE_OPEN);
			break;
		case TL_DATABASE_OPEN:
			break;
	}
	relation_close(sequence, ShareUpdateExclusiveLock);
}

static void
look(TlDatabase *database, Relation sequence)
{
	TlReservation reservation;
	bool		known = tl_page_read_reservation(sequence, &reservation);

	if (!database->restored)
		database->grace_until = known ? find_grace(&reservation) : 0;
	tl_record_load(database, sequence, database->grace_until);
	if (database->grace_until > tl_now())
	{
		report_grace(database->grace_until);
		pg_write_barrier();
		pg_atomic_write_u32(&database->state, TL_DATABASE_GRACE);
	}
	else
	{
		/* the next start must not take us for a standby once more */
		if (known && reservation.history != tl_fence_history())
			tl_promise_renew();
		pg_atomic_write_u32(&database->state, TL_DATABASE_OPEN);
	}
}

/* When are all leases over that were given before the start, or may be? */
static TlTime
find_grace(const TlReservation *reservation)
{
	TlTime		recovered = tl_shmem_recovered();
	TlTime		until;

	if (reservation->history != tl_fence_history())
		return tl_time_add(recovered != 0 ? recovered : tl_now(),
						   Max(reservation->grace, (TlTime) tl_grace * 1000));
	until = tl_time_add(tl_shmem_started(), reservation->longest);
	if (tl_boot_is(reservation->boot))
		until = Min(until, reservation->until);
	return until;
}

static void
report_grace(TlTime until)
{
	ereport(LOG,
			(errmsg("no token of database \"%s\" is granted until %s",
					get_database_name(MyDatabaseId),
					timestamptz_to_str(tl_time_to_timestamptz(until))),
			 errdetail("Leases that were given before the server crashed or was promoted may run until then.")));
}
