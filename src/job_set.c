/*-------------------------------------------------------------------------
 *
 * job_set.c
 *	  SQL entry points of the settings of job tables.
 *
 * A setting is written first, and then the table is described with it: what
 * is wrong with it is the same error that a claim would raise, and undoes the
 * change.  Other sessions hear of the change, when it is committed, by the
 * invalidation message that a change of the table itself would send.
 *
 * Locks: ShareUpdateExclusive on the job table, so that there is one who sets
 * at a time, while jobs are claimed.  For a key column ShareRowExclusive, which
 * waits until open claims have ended: nobody knows the keys of what they have.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "args.h"
#include "catalog/pg_class.h"
#include "clock.h"
#include "commands/trigger.h"
#include "compat.h"
#include "fmgr.h"
#include "job_settings.h"
#include "job_table.h"
#include "job_wait.h"
#include "job_wake.h"
#include "job_xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(tokenlock_job_table_set);
PG_FUNCTION_INFO_V1(tokenlock_job_table_reset);
PG_FUNCTION_INFO_V1(tokenlock_job_settings_restored);

static Oid	begin_change(FunctionCallInfo fcinfo, const char *function,
						 LOCKMODE mode);
static void end_change(Oid relation);
static void check_values(const TlJobSettings *settings);

/*
 * job_table_set(job_table regclass, ...) returns void; the other arguments
 * are the settings in the order of TlJobSetting
 */
Datum
tokenlock_job_table_set(PG_FUNCTION_ARGS)
{
	LOCKMODE	mode;
	Oid			relation;
	TlJobSettings settings;

	if (PG_NARGS() != TL_SET_COUNT + 1)
		elog(ERROR, "unexpected number of arguments: %d", PG_NARGS());
	mode = PG_ARGISNULL(TL_SET_KEY_COLUMN + 1) ?
		ShareUpdateExclusiveLock : ShareRowExclusiveLock;
	relation = begin_change(fcinfo, "job_table_set()", mode);
	tl_settings_read(relation, &settings);
	for (int i = 0; i < TL_SET_COUNT; i++)
		if (!PG_ARGISNULL(i + 1))
		{
			settings.values[i] = PG_GETARG_DATUM(i + 1);
			settings.isnull[i] = false;
		}
	check_values(&settings);
	tl_settings_write(relation, &settings);
	tl_job_table_check(relation);
	if (!PG_ARGISNULL(TL_SET_WAKE + 1))
		tl_wake_set_trigger(relation, PG_GETARG_BOOL(TL_SET_WAKE + 1));
	end_change(relation);
	PG_RETURN_VOID();
}

/*
 * job_table_reset(job_table regclass, setting text) returns void
 *
 * What is left is not checked: to begin anew must always be possible.
 */
Datum
tokenlock_job_table_reset(PG_FUNCTION_ARGS)
{
	Oid			relation = begin_change(fcinfo, "job_table_reset()",
									   ShareUpdateExclusiveLock);
	TlJobSettings settings;
	bool		any = false;
	bool		reset_wake = true;

	if (!PG_ARGISNULL(1))
	{
		char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));
		int			which = 0;

		while (which < TL_SET_COUNT &&
			   strcmp(name, tl_setting_names[which]) != 0)
			which++;
		if (which == TL_SET_COUNT)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("job tables have no setting \"%s\"", name),
					 errhint("The settings are the arguments of job_table_set.")));
		tl_settings_read(relation, &settings);
		reset_wake = which == TL_SET_WAKE;
		settings.isnull[which] = true;
		for (int i = 0; i < TL_SET_COUNT; i++)
			any = any || !settings.isnull[i];
	}
	tl_settings_write(relation, any ? &settings : NULL);
	if (reset_wake)
		tl_wake_set_trigger(relation, false);
	end_change(relation);
	PG_RETURN_VOID();
}

/* Check the caller's rights, and lock the table. */
static Oid
begin_change(FunctionCallInfo fcinfo, const char *function, LOCKMODE mode)
{
	Oid			relation;

	tl_job_attach();
	if (PG_ARGISNULL(0))
		tl_error_null("job_table");
	relation = PG_GETARG_OID(0);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	tl_job_check_kind(relation);
	if (!tl_owns_relation(relation, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relation)),
					   get_rel_name(relation));
	LockRelationOid(relation, mode);
	/* it may have been dropped before we had the lock */
	tl_job_check_kind(relation);
	return relation;
}

/* Let others know, and those who wait look what is ready now. */
static void
end_change(Oid relation)
{
	CacheInvalidateRelcacheByRelid(relation);
	tl_job_wake_at_commit(relation);
}

/* What can be said of the values without the table. */
static void
check_values(const TlJobSettings *settings)
{
	if (!settings->isnull[TL_SET_TTL] && tl_setting_ttl(settings) <= 0)
		tl_error_ttl();
	if (!settings->isnull[TL_SET_MAX_ATTEMPTS] &&
		DatumGetInt64(settings->values[TL_SET_MAX_ATTEMPTS]) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_attempts must be positive"),
				 errhint("Give how often a job may be handed out, or take the setting back with job_table_reset.")));
}

/*
 * Trigger of tokenlock_job_settings before each row that is inserted, which
 * is what restoring a dump does: job_table_set writes without it.  The owner
 * of the database may do so, but says only how its own tables are read:
 * settings are run by whoever claims.
 */
Datum
tokenlock_job_settings_restored(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Oid			relation;
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		elog(ERROR, "must be called as a trigger of an insert");
	relation = DatumGetObjectId(heap_getattr(trigger->tg_trigtuple, 1,
											 RelationGetDescr(trigger->tg_relation),
											 &isnull));
	if (isnull || !tl_owns_relation(relation, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of a job table to restore its settings"),
				 errhint("Restore as the owner of the table, or as a superuser.")));
	return PointerGetDatum(trigger->tg_trigtuple);
}
