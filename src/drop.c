/*-------------------------------------------------------------------------
 *
 * drop.c
 *	  Leaving nothing behind when a database or the extension is dropped.
 *
 * Shared memory knows a database by its oid, which may come back one day.  A
 * drop can fail to the very end, so it is noted when it is asked for, and
 * what is kept goes when it commits.  Dropping the extension ends all tokens
 * of the database, as nobody could put them any more.
 *
 * The settings of a job table are a row that is deleted with the table.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "database.h"
#include "drop.h"
#include "gate.h"
#include "job_settings.h"
#include "miscadmin.h"
#include "promise.h"
#include "record.h"
#include "session.h"
#include "shmem.h"
#include "stats.h"
#include "token.h"

static object_access_hook_type prev_object_access = NULL;

/* The database whose tokens go at commit; InvalidOid: none. */
static Oid	dropped = InvalidOid;
static SubTransactionId dropped_in = InvalidSubTransactionId;

static void on_object_access(ObjectAccessType access, Oid classId,
							 Oid objectId, int subId, void *arg);
static void on_xact(XactEvent event, void *arg);
static void on_subxact(SubXactEvent event, SubTransactionId mySubid,
					   SubTransactionId parentSubid, void *arg);

void
tl_drop_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = on_object_access;
}

static void
on_object_access(ObjectAccessType access, Oid classId, Oid objectId,
				 int subId, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
	if (access == OAT_DROP && classId == ExtensionRelationId &&
		objectId == get_extension_oid("tokenlock", true))
		tl_drop_note_database(MyDatabaseId);
	else if (access == OAT_DROP && classId == RelationRelationId &&
			 subId == 0)
		tl_settings_drop(objectId);
}

void
tl_drop_note_database(Oid database)
{
	static bool registered = false;

	/* now, because the callback may not allocate; and it counts what ends */
	tl_session_attach();
	if (!registered)
	{
		RegisterXactCallback(on_xact, NULL);
		RegisterSubXactCallback(on_subxact, NULL);
		registered = true;
	}
	dropped = database;
	dropped_in = GetCurrentSubTransactionId();
}

static void
purge_tokens(Oid database)
{
	TlKick		kicks[16];
	int			n;

	do
	{
		n = tl_token_purge(database, kicks, lengthof(kicks));
		for (int i = 0; i < n; i++)
			tl_gate_kick(&kicks[i].key, kicks[i].procno,
						 kicks[i].hold_serial, TL_CLASS_HOLD);
	} while (n == lengthof(kicks));
}

static void
on_xact(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && OidIsValid(dropped))
	{
		purge_tokens(dropped);
		tl_stats_purge(dropped);
		if (dropped != MyDatabaseId)
			tl_database_purge(dropped);
		else
		{
			tl_promise_forget();
			tl_record_forget(tl_database());
		}
	}
	/* nobody tells us how a prepared transaction ends: then the tokens stay */
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		dropped = InvalidOid;
}

static void
on_subxact(SubXactEvent event, SubTransactionId mySubid,
		   SubTransactionId parentSubid, void *arg)
{
	if (dropped_in != mySubid)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		dropped_in = parentSubid;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		dropped = InvalidOid;
}
