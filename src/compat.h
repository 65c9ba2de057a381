/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between the PostgreSQL majors that tokenlock builds on.
 *
 * This is the only file that tests PG_VERSION_NUM.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_COMPAT_H
#define TOKENLOCK_COMPAT_H

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "lib/dshash.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 190000
#include "access/tableam.h"
#include "optimizer/pathnode.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"
#else
#include "commands/dbcommands.h"
#include "optimizer/plancat.h"
#endif

#if PG_VERSION_NUM < 150000
#error "tokenlock needs PostgreSQL 15 or later"
#endif

/* Says of a function that it does not return; first in its declaration. */
#if PG_VERSION_NUM >= 180000
#define tl_noreturn	pg_noreturn
#else
#define tl_noreturn	pg_attribute_noreturn()
#endif

/* Says at the end of a case that it goes on in the next one. */
#ifdef pg_fallthrough
#define tl_fallthrough	pg_fallthrough
#else
#define tl_fallthrough	__attribute__((fallthrough))
#endif

/*
 * The planner's hook that may change what it knows of a table: its type, its
 * parameters, their names for a further call, and the table's oid in it.
 */
#if PG_VERSION_NUM >= 190000
#define tl_table_hook				build_simple_rel_hook
#define tl_table_hook_type			build_simple_rel_hook_type
#define TL_TABLE_HOOK_PARAMETERS	PlannerInfo *root, RelOptInfo *rel, \
									RangeTblEntry *rte
#define TL_TABLE_HOOK_ARGUMENTS		root, rel, rte
#define TL_TABLE_HOOK_RELATION		(rte->relid)
#else
#define tl_table_hook				get_relation_info_hook
#define tl_table_hook_type			get_relation_info_hook_type
#define TL_TABLE_HOOK_PARAMETERS	PlannerInfo *root, Oid table, \
									bool inhparent, RelOptInfo *rel
#define TL_TABLE_HOOK_ARGUMENTS		root, table, inhparent, rel
#define TL_TABLE_HOOK_RELATION		table
#endif

/* The number of this backend's PGPROC. */
#if PG_VERSION_NUM >= 170000
#define tl_my_procno()	((int) MyProcNumber)
#else
#define tl_my_procno()	(MyProc->pgprocno)
#endif

/* The local number of this backend's transaction. */
#if PG_VERSION_NUM >= 170000
#define tl_my_lxid()	(MyProc->vxid.lxid)
#else
#define tl_my_lxid()	(MyProc->lxid)
#endif

/* Does this backend hold exactly this mode of this lock, at any level? */
static inline bool
tl_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* The wait event of a sleep on the latch: an own one where the server has them. */
static inline uint32
tl_wait_event(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("TokenlockWait");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* The schema of an extension; exported by the server from 16 on. */
static inline Oid
tl_extension_schema(Oid extension)
{
#if PG_VERSION_NUM >= 160000
	return get_extension_schema(extension);
#else
	Relation	relation = table_open(ExtensionRelationId, AccessShareLock);
	Oid			schema = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(relation, ExtensionOidIndexId, true, NULL,
							  1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return schema;
#endif
}

/* Does this role own that database? */
static inline bool
tl_owns_database(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, role);
#else
	return pg_database_ownercheck(database, role);
#endif
}

/* Does this role own that table? */
static inline bool
tl_owns_relation(Oid relation, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, relation, role);
#else
	return pg_class_ownercheck(relation, role);
#endif
}

/* May this role call that function? */
static inline bool
tl_may_execute(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role,
						   ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/* A tranche of locks.  From 19 on all know its name, before each names it. */
static inline int
tl_new_tranche(const char *name)
{
#if PG_VERSION_NUM >= 190000
	return LWLockNewTrancheId(name);
#else
	return LWLockNewTrancheId();
#endif
}

static inline void
tl_name_tranche(int tranche, const char *name)
{
#if PG_VERSION_NUM < 190000
	LWLockRegisterTranche(tranche, name);
#endif
}

/* How dshash copies a key into its table: from 17 on it has to be told. */
static inline void
tl_dshash_copies_keys(dshash_parameters *parameters)
{
#if PG_VERSION_NUM >= 170000
	parameters->copy_function = dshash_memcpy;
#endif
}

/* Start an index scan. */
static inline IndexScanDesc
tl_index_beginscan(Relation heap, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 190000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0, SO_NONE);
#elif PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

/* Is this interval one of the infinite ones that version 17 brought? */
#if PG_VERSION_NUM >= 170000
#define tl_interval_is_infinite(i)	INTERVAL_NOT_FINITE(i)
#else
#define tl_interval_is_infinite(i)	false
#endif

#endif							/* TOKENLOCK_COMPAT_H */
