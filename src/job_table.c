/*-------------------------------------------------------------------------
 *
 * job_table.c
 *	  Job tables as this backend knows them.
 *
 * What is found out about a table is kept until an invalidation message says
 * that it, or what its names mean, may have changed.  As those messages are
 * read when a lock is taken, in the middle of a call too, what became invalid
 * is freed in a later transaction only.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "job_table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/syscache.h"

typedef struct TlTableEntry
{
	Oid			relation;		/* hash key, must be first */
	TlJobTableInfo *info;
	bool		index_warned;
} TlTableEntry;

static HTAB *tables = NULL;
static TlJobTableInfo *retired = NULL;

/*
 * The table that is being described, and whether a change of it was heard of
 * meanwhile: our lock keeps off changes of the table, but not of settings.
 */
static Oid	describing = InvalidOid;
static bool describing_changed;

static void on_relation_change(Datum arg, Oid relation);
static void on_catalog_change(Datum arg, int cacheid, uint32 hashvalue);
static void check_rights(Oid relation);
static void free_retired(void);

TlJobTableInfo *
tl_job_table(Oid relation)
{
	TlTableEntry *entry;
	bool		found;

	if (tables == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(TlTableEntry);
		ctl.hcxt = TopMemoryContext;
		tables = hash_create("tokenlock job tables", 16, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, on_catalog_change, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, on_catalog_change, (Datum) 0);
	}

	/* Also hears what has changed, as far as it was committed. */
	check_rights(relation);
	LockRelationOid(relation, RowExclusiveLock);

	entry = hash_search(tables, &relation, HASH_ENTER, &found);
	if (!found)
	{
		entry->info = NULL;
		entry->index_warned = false;
	}
	if (likely(entry->info && entry->info->valid))
		return entry->info;

	if (entry->info)
	{
		entry->info->retired_in = tl_my_lxid();
		entry->info->next_retired = retired;
		retired = entry->info;
		entry->info = NULL;
	}
	free_retired();
	describing = relation;
	describing_changed = false;
	entry->info = tl_job_describe(relation);
	entry->info->valid = !describing_changed;
	describing = InvalidOid;
	MemoryContextSetParent(entry->info->context, TopMemoryContext);
	return entry->info;
}

bool
tl_job_first_index_warning(Oid relation)
{
	TlTableEntry *entry = hash_search(tables, &relation, HASH_FIND, NULL);
	bool		first = entry && !entry->index_warned;

	if (first)
		entry->index_warned = true;
	return first;
}

static void
on_relation_change(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS status;
	TlTableEntry *entry;

	if (!OidIsValid(relation) || relation == describing)
		describing_changed = true;
	hash_seq_init(&status, tables);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (entry->info &&
			(!OidIsValid(relation) || relation == entry->relation ||
			 relation == entry->info->key_index ||
			 list_member_oid(entry->info->leaves, relation)))
			entry->info->valid = false;
}

static void
on_catalog_change(Datum arg, int cacheid, uint32 hashvalue)
{
	on_relation_change(arg, InvalidOid);
}

/* Free what no call of this transaction can be using. */
static void
free_retired(void)
{
	TlJobTableInfo **link = &retired;

	while (*link)
	{
		TlJobTableInfo *info = *link;

		if (info->retired_in == tl_my_lxid())
		{
			link = &info->next_retired;
			continue;
		}
		*link = info->next_retired;
		tl_job_free_plans(info);
		MemoryContextDelete(info->context);
	}
}

/*
 * May the current role update the table, or any column of it?  The statements
 * check the rest, but we lock the table before the first of them.
 */
static void
check_rights(Oid relation)
{
	if (pg_class_aclcheck(relation, GetUserId(), ACL_UPDATE) == ACLCHECK_OK)
		return;
	if (pg_attribute_aclcheck_all(relation, GetUserId(), ACL_UPDATE,
								  ACLMASK_ANY) == ACLCHECK_OK)
		return;
	aclcheck_error(ACLCHECK_NO_PRIV,
				   get_relkind_objtype(get_rel_relkind(relation)),
				   get_rel_name(relation));
}

bool
tl_job_row_security(const TlJobTableInfo *info)
{
	return info->row_security &&
		check_enable_rls(info->relation, InvalidOid, true) == RLS_ENABLED;
}

/*
 * Workers' names
 */

/*
 * Write down a sid as the column's type writes it.  Types that pad with blanks
 * do so in the table, too: leave them out.
 */
static void
sid_key(TlJobTableInfo *info, Datum sid, TlKey *key, bool *fits)
{
	TlJobColumn *column = &info->sid;
	const char *name;
	int			len;

	if (column->type == TEXTOID || column->type == VARCHAROID)
	{
		struct varlena *value = PG_DETOAST_DATUM_PACKED(sid);

		name = VARDATA_ANY(value);
		len = VARSIZE_ANY_EXHDR(value);
	}
	else
	{
		name = OutputFunctionCall(&column->output, sid);
		len = strlen(name);
		if (column->type == BPCHAROID)
			while (len > 0 && name[len - 1] == ' ')
				len--;
	}
	*fits = len <= TL_NAME_MAX;
	if (*fits)
		tl_key_init(key, info->relation, name, len);
}

/*
 * These types cut off what they have no room for, which would make one worker
 * of several.
 */
static bool
is_cut(TlJobColumn *column, text *sid, TlKey *key, bool fits)
{
	return (column->type == NAMEOID || column->type == CHAROID ||
			column->type == VARCHAROID) &&
		fits && key->len < VARSIZE_ANY_EXHDR(sid);
}

Datum
tl_job_sid(TlJobTableInfo *info, text *sid, TlKey *key)
{
	TlJobColumn *column = &info->sid;
	Datum		value;
	bool		fits;

	if (column->type == TEXTOID)
		value = PointerGetDatum(sid);
	else
		value = InputFunctionCall(&column->input, text_to_cstring(sid),
								  column->input_param, column->typmod);
	sid_key(info, value, key, &fits);
	if (is_cut(column, sid, key, fits))
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("sid is too long"),
				 errdetail("A value of type %s has no room for it.",
						   format_type_be(column->type)),
				 errhint("Use a shorter one, or a column of type text.")));
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("sid is too long"),
				 errdetail("As a value of type %s it has more than %d bytes.",
						   format_type_be(column->type), TL_NAME_MAX),
				 errhint("Use a shorter one.")));
	return value;
}

bool
tl_job_sid_key(TlJobTableInfo *info, Datum sid, TlKey *key)
{
	bool		fits;

	sid_key(info, sid, key, &fits);
	return fits;
}

void
tl_job_no_sid_key(TlJobTableInfo *info, TlKey *key)
{
	tl_key_init(key, info->relation, "", 1);
}

bool
tl_job_is_no_sid(const TlKey *key)
{
	return key->len == 1 && key->name[0] == '\0';
}

static bool
range_of(TlJobTableInfo *info, const TlJobRow *rows, int n, bool all,
		 TlRange *range)
{
	TlRange		row;
	bool		any = false;

	tl_range_forget(range);
	for (int i = 0; i < n; i++)
	{
		if (!all && rows[i].turn != 0)
			continue;
		tl_point_set(&row.lo, &info->key, rows[i].id);
		row.hi = row.lo;
		if (!any)
			*range = row;
		else
			tl_range_widen(range, &row, &info->key);
		any = true;
	}
	return any;
}

void
tl_job_range(TlJobTableInfo *info, const TlJobRow *rows, int n,
			 TlRange *range)
{
	(void) range_of(info, rows, n, true, range);
}

bool
tl_job_range_without_turns(TlJobTableInfo *info, const TlJobRow *rows, int n,
						   TlRange *range)
{
	return range_of(info, rows, n, false, range);
}
