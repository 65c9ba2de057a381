/*-------------------------------------------------------------------------
 *
 * statefile.c
 *	  Leases, places and workers over a clean stop of the server.
 *
 * The postmaster writes them to a file when it ends, after everybody else,
 * and reads it when it starts, before everybody else.
 *
 * What the file says is true only if nothing was granted since.  So it names
 * the shutdown checkpoint that it was written after, and is believed only if
 * the control file says that the server was shut down by that very one; not
 * when a standby or an archive recovery is asked for.  And it is removed, for
 * good, as soon as it was read.
 *
 * Points in time are of the boot-time clock.  On the same boot they are still
 * the same, so leases age while the server is down.  On another boot nobody
 * can tell how long it was down; there they get what was left of them.
 *
 * Only databases that somebody has looked at since the start are in the file.
 * Of the others nothing is known but their pages (recover.c).
 *
 * Locks: none that anybody else could have, as there is nobody else.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "clock.h"
#include "common/controldata_utils.h"
#include "database.h"
#include "grant.h"
#include "job_worker.h"
#include "line.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "statefile.h"
#include "storage/fd.h"
#include "storage/ipc.h"

#define TL_STATE_FILE	"pg_stat/tokenlock.state"
#define TL_STATE_TEMP	TL_STATE_FILE ".tmp"

/* Changes with each change of what is written. */
#define TL_STATE_MAGIC	UINT64CONST(0x746f6b656e737431)

/* What the file begins with. */
typedef struct TlStateHead
{
	uint64		magic;
	uint64		system;			/* identifier of the cluster */
	uint64		checkpoint;		/* where its shutdown checkpoint is */
	uint64		boot;			/* tl_boot() */
	TlTime		written;
} TlStateHead;

/*
 * What follows, one after the other, each behind one of these letters: first
 * the databases, and at the end, behind TL_STATE_END, a checksum of it all.
 */
#define TL_STATE_DATABASE	'D'
#define TL_STATE_LEASE		'L'
#define TL_STATE_PLACE		'P'
#define TL_STATE_WORKER		'W'
#define TL_STATE_END		'E'

typedef struct TlStateDatabase
{
	Oid			database;
	TlTime		grace_until;	/* 0: none */
} TlStateDatabase;

typedef struct TlStateLease
{
	TlKey		key;
	TlLease		lease;
} TlStateLease;

typedef struct TlStatePlace
{
	TlKey		key;
	TlPlace		place;
} TlStatePlace;

/* The file while it is written or read. */
typedef struct TlStateFile
{
	FILE	   *file;
	pg_crc32c	crc;
	bool		failed;
} TlStateFile;

static void on_start(void);
static void on_exit_of_postmaster(int code, Datum arg);
static bool clean_stop(TlStateHead *head);
static bool recovery_is_asked_for(void);
static void write_all(TlStateFile *state);
static bool read_all(TlStateFile *state, const TlStateHead *head);

void
tl_statefile_init(void)
{
	tl_shmem_on_start(on_start);
}

static void
put(TlStateFile *state, const void *data, Size size)
{
	COMP_CRC32C(state->crc, data, size);
	if (fwrite(data, size, 1, state->file) != 1)
		state->failed = true;
}

static void
put_item(TlStateFile *state, char kind, const void *data, Size size)
{
	put(state, &kind, 1);
	put(state, data, size);
}

static bool
take(TlStateFile *state, void *data, Size size)
{
	if (state->failed || fread(data, size, 1, state->file) != 1)
	{
		state->failed = true;
		return false;
	}
	COMP_CRC32C(state->crc, data, size);
	return true;
}

/*
 * The postmaster has made the shared memory, at its start or after a crash.
 */
static void
on_start(void)
{
	TlStateFile state = {0};
	TlStateHead head;
	TlStateHead expected;
	bool		believed;

	on_shmem_exit(on_exit_of_postmaster, 0);

	state.file = AllocateFile(TL_STATE_FILE, PG_BINARY_R);
	if (state.file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", TL_STATE_FILE)));
		return;
	}
	INIT_CRC32C(state.crc);
	believed = take(&state, &head, sizeof(head)) &&
		head.magic == TL_STATE_MAGIC &&
		clean_stop(&expected) && !recovery_is_asked_for() &&
		head.system == expected.system &&
		head.checkpoint == expected.checkpoint;

	/* a file that is damaged is found so before anything of it is used */
	if (believed)
	{
		believed = read_all(&state, NULL);
		if (believed)
		{
			rewind(state.file);
			(void) take(&state, &head, sizeof(head));
			(void) read_all(&state, &head);
		}
		else
			ereport(LOG,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("file \"%s\" is damaged and was ignored",
							TL_STATE_FILE)));
	}
	FreeFile(state.file);

	/* for good, or a crash of the machine could bring it back */
	(void) durable_unlink(TL_STATE_FILE, LOG);
}

static void
on_exit_of_postmaster(int code, Datum arg)
{
	TlStateFile state = {0};
	TlStateHead head;

	if (code != 0 || !clean_stop(&head))
		return;
	state.file = AllocateFile(TL_STATE_TEMP, PG_BINARY_W);
	if (state.file != NULL)
	{
		INIT_CRC32C(state.crc);
		put(&state, &head, sizeof(head));
		write_all(&state);
		if (FreeFile(state.file) != 0)
			state.failed = true;
	}
	if (state.file == NULL || state.failed)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", TL_STATE_TEMP)));
		unlink(TL_STATE_TEMP);
		return;
	}
	(void) durable_rename(TL_STATE_TEMP, TL_STATE_FILE, LOG);
}

/*
 * Was the server shut down cleanly, and not as a standby?  Sets what a file
 * of that stop begins with.
 */
static bool
clean_stop(TlStateHead *head)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	bool		clean = crc_ok && control->state == DB_SHUTDOWNED;

	memset(head, 0, sizeof(*head));
	head->magic = TL_STATE_MAGIC;
	head->system = control->system_identifier;
	head->checkpoint = control->checkPoint;
	head->boot = tl_boot();
	head->written = tl_now();
	pfree(control);
	return clean;
}

static bool
recovery_is_asked_for(void)
{
	static const char *const signals[] = {
		"standby.signal", "recovery.signal", "backup_label"
	};
	struct stat st;

	for (size_t i = 0; i < lengthof(signals); i++)
		if (stat(signals[i], &st) == 0)
			return true;
	return false;
}

/*
 * Writing
 */

/* Is the database one of those that the file is about? */
static bool
is_known(TlDatabase *database)
{
	return database->restored ||
		pg_atomic_read_u32(&database->state) != TL_DATABASE_UNKNOWN;
}

static void
write_databases(TlStateFile *state)
{
	dshash_seq_status status;
	TlDatabase *database;

	dshash_seq_init(&status, tl_shmem_table(TL_TABLE_DATABASES), false);
	while ((database = dshash_seq_next(&status)) != NULL)
	{
		TlStateDatabase saved = {0};

		if (!is_known(database))
			continue;
		saved.database = database->key.database;
		if (pg_atomic_read_u32(&database->state) != TL_DATABASE_OPEN)
			saved.grace_until = database->grace_until;
		put_item(state, TL_STATE_DATABASE, &saved, sizeof(saved));
	}
	dshash_seq_term(&status);
}

static void
write_tokens(TlStateFile *state)
{
	dshash_seq_status status;
	TlToken    *token;

	dshash_seq_init(&status, tl_shmem_table(TL_TABLE_TOKENS), false);
	while ((token = dshash_seq_next(&status)) != NULL)
	{
		for (TlHolder *holder = tl_holder_at(token->holders);
			 holder != NULL;
			 holder = tl_holder_at(holder->next))
		{
			TlStateLease saved = {0};

			/* sessions have ended, and long leases are on their pages */
			if (holder->scope != TL_SCOPE_OWNER || holder->ended ||
				holder->record != 0)
				continue;
			saved.key = token->key;
			tl_grant_copy(holder, &saved.lease);
			put_item(state, TL_STATE_LEASE, &saved, sizeof(saved));
		}
		for (TlWaiter *waiter = tl_waiter_at(token->waiters);
			 waiter != NULL;
			 waiter = tl_waiter_at(waiter->next))
		{
			TlStatePlace saved = {0};

			if (waiter->standing != TL_STANDING_PLACE)
				continue;
			saved.key = token->key;
			tl_line_copy_place(waiter, &saved.place);
			put_item(state, TL_STATE_PLACE, &saved, sizeof(saved));
		}
	}
	dshash_seq_term(&status);
}

static void
write_workers(TlStateFile *state)
{
	dshash_seq_status status;
	TlWorker   *worker;

	dshash_seq_init(&status, tl_shmem_table(TL_TABLE_WORKERS), false);
	while ((worker = dshash_seq_next(&status)) != NULL)
		put_item(state, TL_STATE_WORKER, worker, sizeof(TlWorker));
	dshash_seq_term(&status);
}

static void
write_all(TlStateFile *state)
{
	char		end = TL_STATE_END;
	pg_crc32c	crc;

	tl_shmem_attach_postmaster();
	write_databases(state);
	write_tokens(state);
	write_workers(state);
	tl_shmem_detach_postmaster();
	put(state, &end, 1);
	crc = state->crc;
	FIN_CRC32C(crc);
	put(state, &crc, sizeof(crc));
}

/*
 * Reading
 */

/* A point in time of the file, on this boot. */
static void
translate(TlTime *when, const TlStateHead *head)
{
	if (*when != TL_NEVER && *when != 0 && !tl_boot_is(head->boot))
		*when += tl_now() - head->written;
}

static void
restore_database(const TlStateHead *head, TlStateDatabase *saved)
{
	TlDatabase *database = tl_database_enter(saved->database);

	translate(&saved->grace_until, head);
	database->grace_until = saved->grace_until;
	database->restored = true;
}

static void
restore_lease(const TlStateHead *head, TlStateLease *saved)
{
	translate(&saved->lease.expires, head);
	translate(&saved->lease.acquired, head);
	/* what there is no room for may run: as after a crash, the page decides */
	if (saved->lease.expires > tl_now() &&
		!tl_grant_revive(&saved->key, &saved->lease))
		tl_database_enter(saved->key.database)->restored = false;
}

static void
restore_place(const TlStateHead *head, TlStatePlace *saved)
{
	translate(&saved->place.deadline, head);
	translate(&saved->place.since, head);
	if (saved->place.deadline > tl_now())
		tl_line_revive(&saved->key, &saved->place);
}

static void
restore_worker(const TlStateHead *head, TlWorker *saved)
{
	translate(&saved->expires, head);
	translate(&saved->look_again, head);
	tl_worker_revive(saved);
}

/* Read all of the file, and with a head, restore what is in it. */
static bool
read_all(TlStateFile *state, const TlStateHead *head)
{
	union
	{
		TlStateDatabase database;
		TlStateLease lease;
		TlStatePlace place;
		TlWorker	worker;
	}			item;
	pg_crc32c	expected;
	pg_crc32c	found;
	char		kind;

	if (head)
		tl_shmem_attach_postmaster();
	while (take(state, &kind, 1) && kind != TL_STATE_END)
	{
		switch (kind)
		{
			case TL_STATE_DATABASE:
				if (take(state, &item.database, sizeof(item.database)) && head)
					restore_database(head, &item.database);
				break;
			case TL_STATE_LEASE:
				if (take(state, &item.lease, sizeof(item.lease)) && head)
					restore_lease(head, &item.lease);
				break;
			case TL_STATE_PLACE:
				if (take(state, &item.place, sizeof(item.place)) && head)
					restore_place(head, &item.place);
				break;
			case TL_STATE_WORKER:
				if (take(state, &item.worker, sizeof(item.worker)) && head)
					restore_worker(head, &item.worker);
				break;
			default:
				state->failed = true;
				break;
		}
	}
	if (head)
	{
		tl_token_discard_spare();
		tl_shmem_detach_postmaster();
	}
	expected = state->crc;
	FIN_CRC32C(expected);
	return take(state, &found, sizeof(found)) && EQ_CRC32C(expected, found);
}
