/*-------------------------------------------------------------------------
 *
 * job_settings.c
 *	  What owners of job tables have set with job_table_set.
 *
 * The settings are rows of the table tokenlock_job_settings, which pg_dump
 * carries as it belongs to the extension.  It is read and written here the
 * way catalogs are: with a snapshot of this moment, whatever the transaction
 * sees, and without regard to rights, which the callers check.
 *
 * Locks: a lock on that table, to the end of the transaction if it is
 * changed.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "clock.h"
#include "commands/extension.h"
#include "compat.h"
#include "job_settings.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define TL_SETTINGS_TABLE	"tokenlock_job_settings"
#define TL_SETTINGS_INDEX	"tokenlock_job_settings_pkey"

const char *const tl_setting_names[TL_SET_COUNT] = {
	[TL_SET_ID_COLUMN] = "id_column",
	[TL_SET_STATUS_COLUMN] = "status_column",
	[TL_SET_SID_COLUMN] = "sid_column",
	[TL_SET_READY_STATUS] = "ready_status",
	[TL_SET_CLAIMED_STATUS] = "claimed_status",
	[TL_SET_DONE_STATUS] = "done_status",
	[TL_SET_FAILED_STATUS] = "failed_status",
	[TL_SET_ORDER_BY] = "order_by",
	[TL_SET_READY_WHEN] = "ready_when",
	[TL_SET_RUN_AT_COLUMN] = "run_at_column",
	[TL_SET_ATTEMPTS_COLUMN] = "attempts_column",
	[TL_SET_MAX_ATTEMPTS] = "max_attempts",
	[TL_SET_ERROR_COLUMN] = "error_column",
	[TL_SET_KEY_COLUMN] = "key_column",
	[TL_SET_TTL] = "ttl",
	[TL_SET_WAKE] = "wake",
	[TL_SET_PAUSED] = "paused",
};

/* The table and its index; InvalidOid when there are none (any more). */
static Oid
settings_table(Oid *index)
{
	Oid			extension = get_extension_oid("tokenlock", true);
	Oid			schema;

	if (!OidIsValid(extension))
		return InvalidOid;
	schema = tl_extension_schema(extension);
	*index = get_relname_relid(TL_SETTINGS_INDEX, schema);
	return OidIsValid(*index) ? get_relname_relid(TL_SETTINGS_TABLE, schema) :
		InvalidOid;
}

static Relation
open_settings(LOCKMODE mode, Oid *index)
{
	Oid			table = settings_table(index);
	Relation	rel;

	if (!OidIsValid(table))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" of extension \"tokenlock\" is missing",
						TL_SETTINGS_TABLE),
				 errhint("Drop and create the extension again.")));
	rel = table_open(table, mode);
	if (RelationGetNumberOfAttributes(rel) != TL_SET_COUNT + 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not of this version of tokenlock",
						TL_SETTINGS_TABLE),
				 errhint("Run ALTER EXTENSION tokenlock UPDATE.")));
	return rel;
}

static SysScanDesc
begin_scan(Relation rel, Oid index, Oid relation)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	return systable_beginscan(rel, index, true, NULL, 1, &key);
}

void
tl_settings_read(Oid relation, TlJobSettings *settings)
{
	Oid			index;
	Relation	rel = open_settings(AccessShareLock, &index);
	SysScanDesc scan = begin_scan(rel, index, relation);
	HeapTuple	tuple = systable_getnext(scan);

	for (int i = 0; i < TL_SET_COUNT; i++)
	{
		settings->isnull[i] = true;
		settings->values[i] = (Datum) 0;
		if (tuple)
			settings->values[i] = heap_getattr(tuple, i + 2,
											   RelationGetDescr(rel),
											   &settings->isnull[i]);
		if (!settings->isnull[i])
		{
			Form_pg_attribute attribute =
				TupleDescAttr(RelationGetDescr(rel), i + 1);

			/* of those that can be long, a copy that can be read */
			if (attribute->attlen == -1)
				settings->values[i] =
					PointerGetDatum(PG_DETOAST_DATUM_COPY(settings->values[i]));
			else
				settings->values[i] = datumCopy(settings->values[i],
												attribute->attbyval,
												attribute->attlen);
		}
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

char *
tl_setting_text(const TlJobSettings *settings, TlJobSetting which)
{
	return settings->isnull[which] ? NULL :
		TextDatumGetCString(settings->values[which]);
}

TlTime
tl_setting_ttl(const TlJobSettings *settings)
{
	return settings->isnull[TL_SET_TTL] ? 0 :
		tl_interval_to_time(DatumGetIntervalP(settings->values[TL_SET_TTL]));
}

void
tl_settings_write(Oid relation, const TlJobSettings *settings)
{
	Oid			index;
	Relation	rel = open_settings(RowExclusiveLock, &index);
	SysScanDesc scan = begin_scan(rel, index, relation);
	HeapTuple	old = systable_getnext(scan);

	if (settings)
	{
		Datum		values[TL_SET_COUNT + 1];
		bool		isnull[TL_SET_COUNT + 1];
		HeapTuple	tuple;

		values[0] = ObjectIdGetDatum(relation);
		isnull[0] = false;
		memcpy(values + 1, settings->values, sizeof(settings->values));
		memcpy(isnull + 1, settings->isnull, sizeof(settings->isnull));
		tuple = heap_form_tuple(RelationGetDescr(rel), values, isnull);
		if (old)
			CatalogTupleUpdate(rel, &old->t_self, tuple);
		else
			CatalogTupleInsert(rel, tuple);
	}
	else if (old)
		CatalogTupleDelete(rel, &old->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

List *
tl_settings_tables(void)
{
	Oid			index;
	Relation	rel = open_settings(AccessShareLock, &index);
	SysScanDesc scan = systable_beginscan(rel, index, true, NULL, 0, NULL);
	HeapTuple	tuple;
	List	   *tables = NIL;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;

		tables = lappend_oid(tables,
							 DatumGetObjectId(heap_getattr(tuple, 1,
														   RelationGetDescr(rel),
														   &isnull)));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return tables;
}

void
tl_settings_drop(Oid relation)
{
	Oid			index;
	Oid			table = settings_table(&index);
	char		relkind = get_rel_relkind(relation);
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	/* the extension itself may be going at the same time */
	if (!OidIsValid(table) || table == relation ||
		(relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE))
		return;
	rel = table_open(table, RowExclusiveLock);
	scan = begin_scan(rel, index, relation);
	tuple = systable_getnext(scan);
	if (tuple)
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, tuple ? NoLock : RowExclusiveLock);
}
