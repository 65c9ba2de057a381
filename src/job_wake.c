/*-------------------------------------------------------------------------
 *
 * job_wake.c
 *	  The trigger that wakes those who wait for jobs, and wake_jobs.
 *
 * A statement trigger: that a statement has written to the table is all that
 * needs to be known, and it costs the same for one row or a million.  On a
 * partitioned table it does not fire for what is written to a partition by
 * name, so the partitions have it too.  PostgreSQL gives new partitions the
 * row triggers of their parent, but not those of statements: we do.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "args.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "job_table.h"
#include "job_wait.h"
#include "job_wake.h"
#include "job_xact.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#define TL_WAKE_TRIGGER		"tokenlock_wake"
#define TL_WAKE_FUNCTION	"tokenlock_job_wake"

PG_FUNCTION_INFO_V1(tokenlock_job_wake);
PG_FUNCTION_INFO_V1(tokenlock_wake_jobs);

/*
 * Trigger: after each statement that inserts or updates
 *
 * It must not get in the way of writing to the table, so where tokenlock is
 * not preloaded, as perhaps where a dump is restored, it does nothing.
 */
Datum
tokenlock_job_wake(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Oid			relation;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called as a trigger",
						TL_WAKE_FUNCTION),
				 errhint("Use job_table_set(..., wake => true).")));
	relation = RelationGetRelid(trigger->tg_relation);
	if (tl_shmem_is_there() &&
		!(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) &&
		  tl_job_wake_is_own(relation)))
		tl_job_wake_at_commit(relation);
	return PointerGetDatum(NULL);
}

/* May the current role put jobs into the table, or change any? */
static bool
may_write(Oid relation)
{
	AclMode		mode = ACL_INSERT | ACL_UPDATE;

	return pg_class_aclmask(relation, GetUserId(), mode, ACLMASK_ANY) != 0 ||
		pg_attribute_aclcheck_all(relation, GetUserId(), mode,
								  ACLMASK_ANY) == ACLCHECK_OK;
}

/*
 * wake_jobs(job_table regclass) returns void
 */
Datum
tokenlock_wake_jobs(PG_FUNCTION_ARGS)
{
	Oid			relation;

	tl_job_attach();
	if (PG_ARGISNULL(0))
		tl_error_null("job_table");
	relation = PG_GETARG_OID(0);
	tl_job_check_kind(relation);
	if (!may_write(relation))
		aclcheck_error(ACLCHECK_NO_PRIV,
					   get_relkind_objtype(get_rel_relkind(relation)),
					   get_rel_name(relation));
	tl_job_wake_at_commit(relation);
	PG_RETURN_VOID();
}

/* Is this our trigger?  It may have got another name. */
static bool
is_ours(const Trigger *trigger)
{
	char	   *function;

	if (!TRIGGER_FOR_INSERT(trigger->tgtype) ||
		TRIGGER_FOR_ROW(trigger->tgtype))
		return false;
	function = get_func_name(trigger->tgfoid);
	return function && strcmp(function, TL_WAKE_FUNCTION) == 0;
}

static Trigger *
find_trigger(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
		if (is_ours(&triggers->triggers[i]))
			return &triggers->triggers[i];
	return NULL;
}

bool
tl_wake_has_trigger(Relation rel)
{
	Trigger    *trigger = find_trigger(rel);

	return trigger && (trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN ||
					   trigger->tgenabled == TRIGGER_FIRES_ALWAYS);
}

/* The statement that one table needs; NULL if none. */
static char *
trigger_statement(Oid relation, bool wanted)
{
	Relation	rel = table_open(relation, NoLock);
	Trigger    *trigger = find_trigger(rel);
	char	   *statement = NULL;
	char	   *name;

	name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
	if (wanted && trigger == NULL)
	{
		Oid			extension = get_extension_oid("tokenlock", false);
		Oid			schema = tl_extension_schema(extension);

		statement = psprintf("CREATE TRIGGER %s AFTER INSERT OR UPDATE ON %s"
							 " FOR EACH STATEMENT EXECUTE FUNCTION %s.%s()",
							 TL_WAKE_TRIGGER, name,
							 quote_identifier(get_namespace_name(schema)),
							 TL_WAKE_FUNCTION);
	}
	else if (!wanted && trigger)
		statement = psprintf("DROP TRIGGER %s ON %s",
							 quote_identifier(trigger->tgname), name);
	table_close(rel, NoLock);
	return statement;
}

static List *
with_partitions(Oid relation)
{
	/* tables that only inherit from it are no part of the job table */
	if (get_rel_relkind(relation) != RELKIND_PARTITIONED_TABLE)
		return list_make1_oid(relation);
	return find_all_inheritors(relation, ShareUpdateExclusiveLock, NULL);
}

static void
change_triggers(List *tables, bool wanted)
{
	ListCell   *cell;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	foreach(cell, tables)
	{
		char	   *statement = trigger_statement(lfirst_oid(cell), wanted);

		if (statement && SPI_execute(statement, false, 0) != SPI_OK_UTILITY)
			elog(ERROR, "could not change a trigger");
	}
	SPI_finish();
}

void
tl_wake_set_trigger(Oid relation, bool wanted)
{
	change_triggers(with_partitions(relation), wanted);
}

/* The table that a statement has made a partition of another; else InvalidOid. */
static Oid
new_partition(Node *statement)
{
	ListCell   *cell;

	if (IsA(statement, CreateStmt))
	{
		CreateStmt *create = (CreateStmt *) statement;

		if (create->partbound == NULL)
			return InvalidOid;

		/* a temporary table may come first in the search_path */
		return get_relname_relid(create->relation->relname,
								 RangeVarGetCreationNamespace(create->relation));
	}
	if (IsA(statement, AlterTableStmt))
		foreach(cell, ((AlterTableStmt *) statement)->cmds)
		{
			AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);

			if (command->subtype == AT_AttachPartition)
				return RangeVarGetRelid(((PartitionCmd *) command->def)->name,
										NoLock, true);
		}
	return InvalidOid;
}

/* May the current role put the trigger on a table, and is its name free? */
static bool
may_add_trigger(Oid relation, Oid function)
{
	return pg_class_aclcheck(relation, GetUserId(),
							 ACL_TRIGGER) == ACLCHECK_OK &&
		tl_may_execute(function, GetUserId()) &&
		!OidIsValid(get_trigger_oid(relation, TL_WAKE_TRIGGER, true));
}

/* The function of a table's trigger, if that fires. */
static Oid
trigger_function(Oid relation)
{
	Relation	rel = table_open(relation, AccessShareLock);
	Trigger    *trigger = find_trigger(rel);
	Oid			function = trigger && tl_wake_has_trigger(rel) ?
		trigger->tgfoid : InvalidOid;

	table_close(rel, NoLock);
	return function;
}

void
tl_wake_after_utility(Node *statement)
{
	Oid			relation = new_partition(statement);
	char		relkind;
	Oid			function;
	List	   *tables;
	ListCell   *cell;

	if (likely(!OidIsValid(relation)))
		return;
	CommandCounterIncrement();

	/* indexes are attached, too; and IF NOT EXISTS may have found any table */
	relkind = get_rel_relkind(relation);
	if ((relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE) ||
		!get_rel_relispartition(relation))
		return;
	function = trigger_function(get_partition_parent(relation, false));
	if (!OidIsValid(function))
		return;

	/* it may have jobs already */
	tl_job_wake_at_commit(relation);
	tables = with_partitions(relation);
	foreach(cell, tables)
		if (!may_add_trigger(lfirst_oid(cell), function))
			tables = foreach_delete_current(tables, cell);
	change_triggers(tables, true);
}
