/*-------------------------------------------------------------------------
 *
 * job_describe.c
 *	  What there is to know about a job table: its columns, settings, storage.
 *
 * Whatever keeps jobs from being claimed is an error here, so that
 * job_table_set can check settings by describing the table with them.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "compat.h"
#include "job_parse.h"
#include "job_table.h"
#include "job_wake.h"
#include "miscadmin.h"
#include "rewrite/prs2lock.h"
#include "rewrite/rewriteDefine.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* What holds for a table whose owner has said nothing else. */
static const char *const defaults[TL_SET_COUNT] = {
	[TL_SET_STATUS_COLUMN] = "status",
	[TL_SET_SID_COLUMN] = "sid",
	[TL_SET_READY_STATUS] = "0",
	[TL_SET_CLAIMED_STATUS] = "2",
	[TL_SET_DONE_STATUS] = "1",
	[TL_SET_FAILED_STATUS] = "3",
};

static const TlJobSetting status_settings[TL_JOB_STATUS_COUNT] = {
	[TL_JOB_READY] = TL_SET_READY_STATUS,
	[TL_JOB_CLAIMED] = TL_SET_CLAIMED_STATUS,
	[TL_JOB_DONE] = TL_SET_DONE_STATUS,
	[TL_JOB_FAILED] = TL_SET_FAILED_STATUS,
};

static void check_rules(Relation rel);
static void describe_columns(TlJobTableInfo *info, Relation rel,
							 const TlJobSettings *settings);
static void describe_column(Relation rel, AttrNumber attnum,
							TlJobColumn *column, const char *alias);
static void describe_order(TlJobTableInfo *info, Oid collation);
static void describe_equality(TlJobTableInfo *info, Oid collation);
static void describe_statuses(TlJobTableInfo *info,
							  const TlJobSettings *settings);
static void describe_storage(TlJobTableInfo *info, Relation rel);
static void describe_readiness(TlJobTableInfo *info, Relation rel,
							   const TlJobSettings *settings);
static void describe_attempts(TlJobTableInfo *info, Relation rel,
							  const TlJobSettings *settings);
static void describe_turns(TlJobTableInfo *info, Relation rel,
						   const TlJobSettings *settings);
static void describe_use(TlJobTableInfo *info, Relation rel);
static uint32 settings_digest(const TlJobTableInfo *info);
static char *operator_name(Oid operator);

TlJobTableInfo *
tl_job_describe(Oid relation)
{
	Relation	rel;
	MemoryContext context;
	MemoryContext oldcontext;
	TlJobTableInfo *info;
	TlJobSettings settings;

	tl_job_check_kind(relation);
	rel = table_open(relation, NoLock);
	check_rules(rel);

	/* Made ready aside, so that an error leaves nothing behind. */
	context = AllocSetContextCreate(CurrentMemoryContext,
									"tokenlock job table",
									ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(context);
	tl_settings_read(relation, &settings);
	info = palloc0(sizeof(TlJobTableInfo));
	info->relation = relation;
	info->context = context;
	info->row_type = rel->rd_rel->reltype;
	info->name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
											RelationGetRelationName(rel));
	info->partitioned = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	info->row_security = rel->rd_rel->relrowsecurity;
	info->ttl = tl_setting_ttl(&settings);
	info->paused = !settings.isnull[TL_SET_PAUSED] &&
		DatumGetBool(settings.values[TL_SET_PAUSED]);
	describe_columns(info, rel, &settings);
	describe_statuses(info, &settings);
	describe_readiness(info, rel, &settings);
	describe_attempts(info, rel, &settings);
	describe_turns(info, rel, &settings);
	describe_use(info, rel);
	describe_storage(info, rel);
	info->stamp.settings = settings_digest(info);

	/*
	 * The key holds for the table alone, not for tables that inherit from it:
	 * leave their rows out.
	 */
	info->from = psprintf("%s%s AS %s", info->partitioned ? "" : "ONLY ",
						  info->name, info->alias);
	table_close(rel, NoLock);

	MemoryContextSwitchTo(oldcontext);
	return info;
}

/*
 * A rule that puts something else in the place of an UPDATE would have us
 * hand out jobs that stay as they were.
 */
static void
check_rules(Relation rel)
{
	RuleLock   *rules = rel->rd_rules;

	for (int i = 0; rules && i < rules->numLocks; i++)
		if (rules->rules[i]->event == CMD_UPDATE &&
			rules->rules[i]->isInstead &&
			rules->rules[i]->enabled != RULE_DISABLED)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot claim jobs from table \"%s\"",
							RelationGetRelationName(rel)),
					 errdetail("It has an ON UPDATE DO INSTEAD rule."),
					 errhint("Use a trigger in place of the rule.")));
}

void
tl_job_table_check(Oid relation)
{
	TlJobTableInfo *info = tl_job_describe(relation);

	tl_job_check_statements(info);
	tl_job_free_plans(info);
	MemoryContextDelete(info->context);
}

void
tl_job_check_kind(Oid relation)
{
	char		relkind = get_rel_relkind(relation);

	if (relkind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation),
				 errhint("It may have been dropped a moment ago.")));
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot claim jobs from relation \"%s\"",
						get_rel_name(relation)),
				 errdetail_relkind_not_supported(relkind),
				 errhint("Claim from the table that the rows are stored in.")));
}

const char *
tl_job_default(TlJobSetting setting)
{
	return defaults[setting];
}

/* What the owner has set, or else the default. */
static const char *
setting_or_default(const TlJobSettings *settings, TlJobSetting which)
{
	const char *value = tl_setting_text(settings, which);

	return value ? value : defaults[which];
}

/* What decides which rows are ready, and which belong to whom. */
static uint32
settings_digest(const TlJobTableInfo *info)
{
	char	   *all = psprintf("%d %d %d %s %s %d %u", info->keyed,
							   info->status.attnum, info->sid.attnum,
							   info->literals[TL_JOB_READY],
							   info->literals[TL_JOB_CLAIMED],
							   info->turn.attnum, info->turn.type);

	return hash_bytes((unsigned char *) all, strlen(all));
}

static AttrNumber
require_column(Relation rel, const char *name, TlJobSetting setting)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("cannot claim jobs from table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("It has no column \"%s\".", name),
				 errhint("Name the column with job_table_set(..., %s => ...).",
						 tl_setting_names[setting])));
	return attnum;
}

/* An index over all rows that begins with this column. */
static Oid
index_on(Relation rel, AttrNumber attnum)
{
	List	   *indexes = RelationGetIndexList(rel);
	Oid			found = InvalidOid;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (index->rd_index->indisvalid &&
			index->rd_rel->relam == BTREE_AM_OID &&
			index->rd_index->indkey.values[0] == attnum &&
			heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
			found = lfirst_oid(cell);
		index_close(index, AccessShareLock);
		if (OidIsValid(found))
			break;
	}
	list_free(indexes);
	return found;
}

/* The column that tells jobs apart, and an index that begins with it. */
static AttrNumber
id_column(Relation rel, const TlJobSettings *settings, Oid *index)
{
	char	   *name = tl_setting_text(settings, TL_SET_ID_COLUMN);
	Oid			constraint;
	Bitmapset  *columns;
	AttrNumber	attnum;

	if (name)
	{
		attnum = require_column(rel, name, TL_SET_ID_COLUMN);
		if (!TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attnotnull)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot claim jobs from table \"%s\"",
							RelationGetRelationName(rel)),
					 errdetail("Column \"%s\" may be null.", name),
					 errhint("Run ALTER TABLE ... ALTER COLUMN ... SET NOT NULL.")));
		*index = index_on(rel, attnum);
		return attnum;
	}

	columns = get_primary_key_attnos(RelationGetRelid(rel), true, &constraint);
	if (bms_membership(columns) != BMS_SINGLETON)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot claim jobs from table \"%s\"",
						RelationGetRelationName(rel)),
				 columns == NULL ?
				 errdetail("It has no primary key.") :
				 errdetail("Its primary key has several columns."),
				 errhint("Name the column that tells jobs apart with job_table_set(..., id_column => ...).")));
	*index = get_constraint_index(constraint);
	return bms_singleton_member(columns) + FirstLowInvalidHeapAttributeNumber;
}

AttrNumber
tl_job_primary_key(Oid relation)
{
	Oid			constraint;
	Bitmapset  *columns = get_primary_key_attnos(relation, true, &constraint);

	if (bms_membership(columns) != BMS_SINGLETON)
		return InvalidAttrNumber;
	return bms_singleton_member(columns) + FirstLowInvalidHeapAttributeNumber;
}

/* A name that is none of the table's columns'. */
static char *
choose_name(Relation rel, const char *name)
{
	char	   *alias = pstrdup(name);

	while (get_attnum(RelationGetRelid(rel), alias) != InvalidAttrNumber)
		alias = psprintf("%s_", alias);
	return alias;
}

/* A column that the settings name, or a default. */
static AttrNumber
named_column(Relation rel, const TlJobSettings *settings, TlJobSetting which)
{
	return require_column(rel, setting_or_default(settings, which), which);
}

static void
describe_columns(TlJobTableInfo *info, Relation rel,
				 const TlJobSettings *settings)
{
	AttrNumber	id = id_column(rel, settings, &info->key_index);
	AttrNumber	status = named_column(rel, settings, TL_SET_STATUS_COLUMN);
	AttrNumber	sid = named_column(rel, settings, TL_SET_SID_COLUMN);

	info->alias = choose_name(rel, "job");
	describe_column(rel, id, &info->id, info->alias);
	describe_column(rel, status, &info->status, info->alias);
	describe_column(rel, sid, &info->sid, info->alias);
	describe_order(info, TupleDescAttr(RelationGetDescr(rel), id - 1)->attcollation);
	describe_equality(info, TupleDescAttr(RelationGetDescr(rel), status - 1)->attcollation);
	info->sid_may_be_null =
		!TupleDescAttr(RelationGetDescr(rel), sid - 1)->attnotnull;
}

static void
describe_column(Relation rel, AttrNumber attnum, TlJobColumn *column,
				const char *alias)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel),
												attnum - 1);
	TypeCacheEntry *type;
	Oid			function;
	bool		is_varlena;

	column->attnum = attnum;
	column->raw_name = pstrdup(NameStr(attribute->attname));
	column->target = pstrdup(quote_identifier(column->raw_name));
	column->name = psprintf("%s.%s", alias, column->target);
	column->typmod = attribute->atttypmod;
	column->type = getBaseTypeAndTypmod(attribute->atttypid, &column->typmod);
	type = lookup_type_cache(column->type, TYPECACHE_EQ_OPR);
	if (!OidIsValid(type->eq_opr))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("cannot claim jobs from table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("Type %s of column \"%s\" has no equality operator.",
						   format_type_be(column->type), column->raw_name),
				 errhint("Use a type that can be compared.")));
	column->len = type->typlen;
	column->byval = type->typbyval;
	/* with a typmod of -1, or "character" would be cut to one letter */
	column->type_name = format_type_extended(column->type, -1,
											 FORMAT_TYPE_TYPEMOD_GIVEN |
											 FORMAT_TYPE_FORCE_QUALIFY);
	column->cut_type_name = format_type_extended(column->type, column->typmod,
												 FORMAT_TYPE_TYPEMOD_GIVEN |
												 FORMAT_TYPE_FORCE_QUALIFY);
	column->equals = operator_name(type->eq_opr);
	getTypeInputInfo(column->type, &function, &column->input_param);
	fmgr_info_cxt(function, &column->input, CurrentMemoryContext);
	getTypeOutputInfo(column->type, &function, &is_varlena);
	fmgr_info_cxt(function, &column->output, CurrentMemoryContext);
}

static void
describe_order(TlJobTableInfo *info, Oid collation)
{
	TypeCacheEntry *type = lookup_type_cache(info->id.type,
											 TYPECACHE_BTREE_OPFAMILY |
											 TYPECACHE_CMP_PROC);
	Oid			operators[BTMaxStrategyNumber + 1];

	for (int i = 1; i <= BTMaxStrategyNumber; i++)
		operators[i] = OidIsValid(type->btree_opf) ?
			get_opfamily_member(type->btree_opf, type->btree_opintype,
								type->btree_opintype, i) : InvalidOid;
	info->key_array_type = get_array_type(info->id.type);
	if (!OidIsValid(operators[BTGreaterStrategyNumber]) ||
		!OidIsValid(type->cmp_proc) || !OidIsValid(info->key_array_type))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("cannot claim jobs from table with a key of type %s",
						format_type_be(info->id.type)),
				 errhint("Use a key of a type that has a sort order and arrays.")));

	info->less_equal = operator_name(operators[BTLessEqualStrategyNumber]);
	info->greater = operator_name(operators[BTGreaterStrategyNumber]);
	info->greater_equal = operator_name(operators[BTGreaterEqualStrategyNumber]);
	info->key.stamp.column = info->id.attnum;
	info->key.stamp.type = info->id.type;
	info->key.stamp.collation = collation;
	info->key.len = type->typlen;
	info->key.byval = type->typbyval;
	info->key.align = type->typalign;
	fmgr_info_cxt(type->cmp_proc, &info->key.compare, CurrentMemoryContext);
}

/*
 * How the status is compared: by its bytes, or, where 'NEW' can be the same as
 * 'new', or 0.0 as 0, by a function.
 */
static void
describe_equality(TlJobTableInfo *info, Oid collation)
{
	TypeCacheEntry *type = lookup_type_cache(info->status.type,
											 TYPECACHE_EQ_OPR |
											 TYPECACHE_BTREE_OPFAMILY);
	Oid			by_image = OidIsValid(type->btree_opf) ?
		get_opfamily_proc(type->btree_opf, type->btree_opintype,
						  type->btree_opintype, BTEQUALIMAGE_PROC) : InvalidOid;

	info->status_by_image = OidIsValid(by_image) &&
		DatumGetBool(OidFunctionCall1Coll(by_image, collation,
										  ObjectIdGetDatum(type->btree_opintype)));

	/* with blanks at the end it is the same */
	if (info->status.type == BPCHAROID && info->status.typmod < 0)
		info->status_by_image = false;
	info->status_collation = collation;
	fmgr_info_cxt(get_opcode(type->eq_opr), &info->status_equal,
				  CurrentMemoryContext);
}

/* What an error of the status type's input function is about. */
typedef struct TlStatusContext
{
	TlJobTableInfo *info;
	TlJobSetting setting;
} TlStatusContext;

static void
status_context(void *arg)
{
	TlStatusContext *context = arg;

	errhint("Name a value that the column has with job_table_set(..., %s => ...).",
			tl_setting_names[context->setting]);
	errcontext("values of column \"%s\" of job table %s",
			   context->info->status.raw_name, context->info->name);
}

/*
 * A value of the status column.  One that the type does not know is an error
 * of its input function.
 */
static void
describe_status(TlJobTableInfo *info, TlJobStatus status, const char *value)
{
	TlJobColumn *column = &info->status;
	TlStatusContext context = {info, status_settings[status]};
	ErrorContextCallback callback;

	callback.callback = status_context;
	callback.arg = &context;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	info->statuses[status] = InputFunctionCall(&column->input,
											   unconstify(char *, value),
											   column->input_param,
											   column->typmod);
	error_context_stack = callback.previous;

	for (int i = 0; i < (int) status; i++)
		if (strcmp(OutputFunctionCall(&column->output, info->statuses[i]),
				   OutputFunctionCall(&column->output,
									  info->statuses[status])) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("cannot claim jobs from table \"%s\"",
							get_rel_name(info->relation)),
					 errdetail("%s and %s are the same value, \"%s\".",
							   tl_setting_names[status_settings[i]],
							   tl_setting_names[status_settings[status]],
							   value)));
	info->literals[status] = psprintf("%s::%s", quote_literal_cstr(value),
									  column->type_name);
}

/*
 * The values of the status column.  "Failed" may be missing, as a type made
 * for fewer values does not have it, unless the owner says that it is there.
 */
static void
describe_statuses(TlJobTableInfo *info, const TlJobSettings *settings)
{
	for (int i = TL_JOB_READY; i <= TL_JOB_DONE; i++)
		describe_status(info, i,
						setting_or_default(settings, status_settings[i]));
	if (!settings->isnull[TL_SET_FAILED_STATUS])
		describe_status(info, TL_JOB_FAILED,
						setting_or_default(settings, TL_SET_FAILED_STATUS));
}

static void
column_type_error(Relation rel, const TlJobColumn *column, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("cannot claim jobs from table \"%s\"",
					RelationGetRelationName(rel)),
			 errdetail("Column \"%s\" is of type %s.", column->raw_name,
					   format_type_be(column->type)),
			 errhint("%s", hint)));
}

/* Which ready rows may be handed out, and in which order. */
static void
describe_readiness(TlJobTableInfo *info, Relation rel,
				   const TlJobSettings *settings)
{
	char	   *order = tl_setting_text(settings, TL_SET_ORDER_BY);
	char	   *ready_when = tl_setting_text(settings, TL_SET_READY_WHEN);

	if (!settings->isnull[TL_SET_RUN_AT_COLUMN])
	{
		AttrNumber	attnum = named_column(rel, settings, TL_SET_RUN_AT_COLUMN);

		describe_column(rel, attnum, &info->run_at, info->alias);
		if (info->run_at.type != TIMESTAMPTZOID)
			column_type_error(rel, &info->run_at,
							  "A point in time that is one for all sessions is of type timestamp with time zone.");
		info->run_at_may_be_null =
			!TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attnotnull;
	}
	if (ready_when)
		info->ready_when = tl_job_parse_condition(info, ready_when);
	info->order = tl_job_parse_order(info, rel, order);
	info->own_order = info->order != NULL;
	if (!info->own_order)
		info->order = info->id.name;
	info->keyed = !info->own_order && !ready_when &&
		info->run_at.attnum == InvalidAttrNumber;
}

/* How often a job may be tried, and where its errors go. */
static void
describe_attempts(TlJobTableInfo *info, Relation rel,
				  const TlJobSettings *settings)
{
	if (!settings->isnull[TL_SET_ATTEMPTS_COLUMN])
	{
		AttrNumber	attnum = named_column(rel, settings,
										  TL_SET_ATTEMPTS_COLUMN);

		describe_column(rel, attnum, &info->attempts, info->alias);
		if (info->attempts.type != INT2OID && info->attempts.type != INT4OID &&
			info->attempts.type != INT8OID)
			column_type_error(rel, &info->attempts,
							  "Attempts are counted in a column of type smallint, integer or bigint.");
	}
	if (!settings->isnull[TL_SET_MAX_ATTEMPTS])
	{
		info->max_attempts =
			DatumGetInt64(settings->values[TL_SET_MAX_ATTEMPTS]);
		if (info->attempts.attnum == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot claim jobs from table \"%s\"",
							RelationGetRelationName(rel)),
					 errdetail("It has max_attempts, but no attempts_column."),
					 errhint("Name the column that counts them with job_table_set(..., attempts_column => ...).")));
		tl_job_require_failed(info);
	}
	if (!settings->isnull[TL_SET_ERROR_COLUMN])
	{
		AttrNumber	attnum = named_column(rel, settings, TL_SET_ERROR_COLUMN);

		describe_column(rel, attnum, &info->error, info->alias);
		if (info->error.type != TEXTOID && info->error.type != VARCHAROID)
			column_type_error(rel, &info->error,
							  "Errors go to a column of type text or varchar.");
	}
}

/*
 * The column whose values take turns, and what is needed to tell them apart.
 * A type that has no order gets by without a shortcut.
 */
static void
describe_turns(TlJobTableInfo *info, Relation rel,
			   const TlJobSettings *settings)
{
	TypeCacheEntry *type;
	AttrNumber	attnum;
	Oid			greater = InvalidOid;

	if (settings->isnull[TL_SET_KEY_COLUMN])
		return;
	attnum = named_column(rel, settings, TL_SET_KEY_COLUMN);
	describe_column(rel, attnum, &info->turn, info->alias);
	info->turn_array_type = get_array_type(info->turn.type);
	type = lookup_type_cache(info->turn.type,
							 TYPECACHE_EQ_OPR | TYPECACHE_BTREE_OPFAMILY |
							 TYPECACHE_HASH_EXTENDED_PROC);
	if (!OidIsValid(info->turn_array_type) ||
		!OidIsValid(type->hash_extended_proc))
		column_type_error(rel, &info->turn,
						  "Use a key of a type that can be hashed and has arrays, such as text, bigint or uuid.");

	info->turn_type.stamp.column = attnum;
	info->turn_type.stamp.type = info->turn.type;
	info->turn_type.stamp.collation =
		TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attcollation;
	info->turn_type.len = type->typlen;
	info->turn_type.byval = type->typbyval;
	info->turn_type.align = type->typalign;
	fmgr_info_cxt(type->hash_extended_proc, &info->turn_hash,
				  CurrentMemoryContext);
	if (OidIsValid(type->btree_opf))
		greater = get_opfamily_member(type->btree_opf, type->btree_opintype,
									  type->btree_opintype,
									  BTGreaterStrategyNumber);
	info->turn_greater = OidIsValid(greater) ? operator_name(greater) : NULL;
	info->turn_alias = choose_name(rel, "turn");
	info->turn_name = psprintf("%s.%s", info->turn_alias,
							   choose_name(rel, "turn_key"));
}

void
tl_job_require_failed(TlJobTableInfo *info)
{
	MemoryContext oldcontext;

	if (info->literals[TL_JOB_FAILED])
		return;
	oldcontext = MemoryContextSwitchTo(info->context);
	describe_status(info, TL_JOB_FAILED, defaults[TL_SET_FAILED_STATUS]);
	MemoryContextSwitchTo(oldcontext);
}

/* What a claim writes must be there for it to write. */
static void
check_writable(Relation rel, const TlJobColumn *column)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel),
												column->attnum - 1);

	if (attribute->attgenerated != '\0' ||
		attribute->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("cannot claim jobs from table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("Column \"%s\" is generated, and cannot be updated.",
						   column->raw_name),
				 errhint("Name a column that is not with job_table_set.")));
}

/*
 * No column can serve two ends; and what a change of them means for the lock.
 * An update of a column in a unique index that a foreign key could refer to
 * locks the row more strongly than others, so it is to be locked like that to
 * begin with.
 */
static void
describe_use(TlJobTableInfo *info, Relation rel)
{
	const TlJobColumn *used[] = {&info->id, &info->status, &info->sid,
	&info->run_at, &info->attempts, &info->error, &info->turn};
	Bitmapset  *keys = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_KEY);

	for (int i = 0; i < (int) lengthof(used); i++)
	{
		if (used[i]->attnum == InvalidAttrNumber)
			continue;
		for (int j = 0; j < i; j++)
			if (used[j]->attnum == used[i]->attnum)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("cannot claim jobs from table \"%s\"",
								RelationGetRelationName(rel)),
						 errdetail("Column \"%s\" cannot be two things at once.",
								   used[i]->raw_name),
						 errhint("A claim changes status and sid; the id and the others need columns of their own.")));
		if (used[i] == &info->id || used[i] == &info->turn)
			continue;
		check_writable(rel, used[i]);
		if (bms_is_member(used[i]->attnum - FirstLowInvalidHeapAttributeNumber,
						  keys))
			info->strong_lock = true;
	}
}

/* Can a change that we make to a row put it into another partition? */
static bool
moves_rows(TlJobTableInfo *info, Relation rel)
{
	const TlJobColumn *changed[] = {&info->status, &info->sid, &info->run_at,
	&info->attempts, &info->error};
	Bitmapset  *columns = NULL;

	for (int i = 0; i < (int) lengthof(changed); i++)
		if (changed[i]->attnum != InvalidAttrNumber)
			columns = bms_add_member(columns,
									 get_attnum(RelationGetRelid(rel),
												changed[i]->raw_name) -
									 FirstLowInvalidHeapAttributeNumber);
	return has_partition_attrs(rel, columns, NULL);
}

/* Where the rows are: the table itself, or its partitions. */
static void
describe_storage(TlJobTableInfo *info, Relation rel)
{
	ListCell   *cell;

	info->stamp.key = info->key.stamp;
	info->heap = true;

	/* what is written to a table that this is a partition of does not fire it */
	info->wake = tl_wake_has_trigger(rel) && !rel->rd_rel->relispartition;
	if (!info->partitioned)
	{
		info->leaves = list_make1_oid(info->relation);
		info->stamp.storage = rel->rd_rel->relfilenode;
		info->heap = rel->rd_tableam == GetHeapamTableAmRoutine();
		return;
	}

	info->leaves = find_all_inheritors(info->relation, AccessShareLock, NULL);
	foreach(cell, info->leaves)
	{
		Relation	leaf = table_open(lfirst_oid(cell), NoLock);

		info->wake = info->wake && tl_wake_has_trigger(leaf);
		if (leaf->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		{
			info->moving = info->moving || moves_rows(info, leaf);
			info->leaves = foreach_delete_current(info->leaves, cell);
		}
		else
		{
			if (leaf->rd_tableam != GetHeapamTableAmRoutine())
				info->heap = false;
			info->stamp.storage =
				hash_combine(info->stamp.storage,
							 hash_combine(lfirst_oid(cell),
										  leaf->rd_rel->relfilenode));
		}
		table_close(leaf, NoLock);
	}
}

static char *
operator_name(Oid operator)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", operator);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	name = psprintf("OPERATOR(%s.%s)",
					quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return name;
}
