/*-------------------------------------------------------------------------
 *
 * job_index.c
 *	  The index that a job table lacks.
 *
 * These looks of a claim need an index to find what they look for without
 * walking over what they do not:
 *
 *	by id	the rows of a list, and of a range; in a table whose order is that
 *			of the id and whose rows are due at once, ready ones as well, as
 *			there claimers start where the last one stopped
 *	ready	in all other tables: ready rows in the table's order
 *	owned	there, too: the rows of a worker, as those of one batch may have
 *			ids from everywhere
 *	turn	where jobs of one key take turns, the first ready row of a key, and
 *			whether one is claimed: two looks
 *
 * The index that is proposed serves for ready and owned: status first, then the
 * order, and only rows that are ready or claimed, so that it stays small
 * however many jobs are done.  Others that serve as well are recognised: those
 * in the opposite order, over all rows, or over one status alone.
 *
 * Locks: none of ours.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "job_index.h"
#include "job_parse.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_clause.h"
#include "parser/parse_collate.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "session.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(tokenlock_missing_index);

/* What an index is to serve for. */
typedef enum TlIndexUse
{
	TL_USE_ID,
	TL_USE_READY,
	TL_USE_OWNED,
	TL_USE_TURN_READY,
	TL_USE_TURN_CLAIMED
} TlIndexUse;

/* One table that has rows: the job table, or a partition of it. */
typedef struct TlIndexTable
{
	TlJobTableInfo *info;
	Relation	rel;
	AttrNumber	id;				/* numbers of the columns in it */
	AttrNumber	status;
	AttrNumber	sid;
	AttrNumber	turn;			/* 0 if there is none */

	/* what is true of the rows that are looked for, as lists of clauses */
	List	   *ready;
	List	   *claimed;
	List	   *done;			/* and of those that are to be left out */
} TlIndexTable;

static bool has_index(TlJobTableInfo *info, TlIndexUse use);
static bool serves(TlIndexTable *table, Relation index, TlIndexUse use);
static List *status_clauses(TlIndexTable *table, TlJobStatus status,
							const char *more);
static bool is_first(TlIndexTable *table, Relation index, int at,
					 AttrNumber attnum);
static bool turn_and_status(TlIndexTable *table, Relation index);
static bool keeps_order(TlIndexTable *table, Relation index,
						AttrNumber same);
static bool has_order(Oid type);
static void append_index(StringInfo buf, TlJobTableInfo *info,
						 TlIndexUse use);

char *
tl_job_missing_index(TlJobTableInfo *info)
{
	int			level = tl_job_begin_path(info);
	StringInfoData buf;
	bool		turns = info->turn.attnum != InvalidAttrNumber &&
		has_order(info->turn.type) && has_order(info->status.type);

	initStringInfo(&buf);
	if (!OidIsValid(info->key_index) && !has_index(info, TL_USE_ID))
		append_index(&buf, info, TL_USE_ID);
	if (!info->keyed || info->row_security)
	{
		bool		ready = has_index(info, TL_USE_READY);

		if (!ready)
			append_index(&buf, info, TL_USE_READY);
		/* that one serves for owned as well, and perhaps for turns */
		if ((ready || !has_order(info->status.type)) &&
			!has_index(info, TL_USE_OWNED))
			append_index(&buf, info, TL_USE_OWNED);
		if (!ready && info->order_columns[0].attnum == info->turn.attnum)
			turns = false;
	}
	if (turns &&
		!(has_index(info, TL_USE_TURN_READY) &&
		  has_index(info, TL_USE_TURN_CLAIMED)))
		append_index(&buf, info, TL_USE_TURN_READY);
	/* a worker's rows lie far apart, where jobs of other keys are passed by */
	if (info->turn.attnum != InvalidAttrNumber && info->keyed &&
		!info->row_security && !has_index(info, TL_USE_OWNED))
		append_index(&buf, info, TL_USE_OWNED);
	tl_job_end_path(level);
	return buf.len > 0 ? buf.data : NULL;
}

/* Is there an index for this, in all tables that have rows? */
static bool
has_index(TlJobTableInfo *info, TlIndexUse use)
{
	ListCell   *leaf;
	bool		found = true;

	foreach(leaf, info->leaves)
	{
		Relation	rel = table_open(lfirst_oid(leaf), AccessShareLock);
		Oid			relation = RelationGetRelid(rel);
		TlIndexTable table = {.info = info,.rel = rel,
			.id = get_attnum(relation, info->id.raw_name),
			.status = get_attnum(relation, info->status.raw_name),
		.sid = get_attnum(relation, info->sid.raw_name)};
		List	   *indexes = RelationGetIndexList(rel);
		ListCell   *cell;

		if (info->turn.attnum != InvalidAttrNumber)
			table.turn = get_attnum(relation, info->turn.raw_name);
		if (use == TL_USE_READY || use == TL_USE_TURN_READY)
		{
			table.ready = status_clauses(&table, TL_JOB_READY,
										 info->ready_when);
			table.done = status_clauses(&table, TL_JOB_DONE,
										info->ready_when);
		}
		else if (use != TL_USE_ID)
		{
			char	   *has_sid = use == TL_USE_OWNED ?
				psprintf("%s IS NOT NULL", info->sid.name) : NULL;

			/* done rows keep their sid */
			table.ready = status_clauses(&table, TL_JOB_READY, NULL);
			table.claimed = status_clauses(&table, TL_JOB_CLAIMED, has_sid);
			table.done = status_clauses(&table, TL_JOB_DONE, has_sid);
		}

		found = false;
		foreach(cell, indexes)
		{
			Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

			found = index->rd_index->indisvalid &&
				index->rd_rel->relam == BTREE_AM_OID &&
				serves(&table, index, use);
			index_close(index, NoLock);
			if (found)
				break;
		}
		table_close(rel, NoLock);
		if (!found)
			break;
	}
	return found;
}

static bool
serves(TlIndexTable *table, Relation index, TlIndexUse use)
{
	List	   *predicate = RelationGetIndexPredicate(index);
	bool		without_done = predicate != NIL &&
		!predicate_implied_by(predicate, table->done, false);

	switch (use)
	{
		case TL_USE_ID:
			return predicate == NIL && is_first(table, index, 0, table->id);
		case TL_USE_READY:
			return predicate_implied_by(predicate, table->ready, false) &&
				(without_done || is_first(table, index, 0, table->status)) &&
				keeps_order(table, index, InvalidAttrNumber);
		case TL_USE_TURN_READY:
			return predicate_implied_by(predicate, table->ready, false) &&
				(turn_and_status(table, index) ||
				 (without_done && is_first(table, index, 0, table->turn))) &&
				keeps_order(table, index, table->turn);
		case TL_USE_TURN_CLAIMED:
			return predicate_implied_by(predicate, table->claimed, false) &&
				(turn_and_status(table, index) ||
				 (without_done && is_first(table, index, 0, table->turn) &&
				  !predicate_implied_by(predicate, table->ready, false)));
		case TL_USE_OWNED:
			if (!predicate_implied_by(predicate, table->claimed, false))
				return false;
			if (is_first(table, index, 0, table->status) ||
				(without_done &&
				 !predicate_implied_by(predicate, table->ready, false)))
				return true;
			return is_first(table, index, 0, table->sid) &&
				(without_done || is_first(table, index, 1, table->status));
	}
	return false;
}

static bool
has_sublink(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubLink))
		return true;
	return raw_expression_tree_walker(node, has_sublink, context);
}

/*
 * What is true of rows with that status, and of which more is known, in the
 * form in which the planner compares it with indexes' predicates.
 */
static List *
status_clauses(TlIndexTable *table, TlJobStatus status, const char *more)
{
	TlJobTableInfo *info = table->info;
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *item;
	StringInfoData buf;
	Node	   *raw;
	Node	   *clause;

	/* no index has a condition with a subquery */
	if (more && has_sublink(tl_job_parse_expression(more), NULL))
		more = NULL;
	initStringInfo(&buf);
	appendStringInfo(&buf, "%s %s %s", info->status.name, info->status.equals,
					 info->literals[status]);
	if (more)
		appendStringInfo(&buf, " AND %s", more);
	if (info->run_at.attnum != InvalidAttrNumber && !info->run_at_may_be_null)
		appendStringInfo(&buf, " AND %s IS NOT NULL", info->run_at.name);
	raw = tl_job_parse_expression(buf.data);

	item = addRangeTableEntryForRelation(pstate, table->rel, AccessShareLock,
										 makeAlias(info->alias, NIL), false,
										 false);
	addNSItemToQuery(pstate, item, false, true, true);
	clause = transformWhereClause(pstate, raw, EXPR_KIND_WHERE, "WHERE");
	assign_expr_collations(pstate, clause);
	clause = eval_const_expressions(NULL, clause);
	clause = (Node *) canonicalize_qual((Expr *) clause, false);
	free_parsestate(pstate);
	return make_ands_implicit((Expr *) clause);
}

/* Has the index this column at that place, in the order of its type? */
static bool
is_first(TlIndexTable *table, Relation index, int at, AttrNumber attnum)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(table->rel),
												attnum - 1);
	TypeCacheEntry *type = lookup_type_cache(getBaseType(attribute->atttypid),
											 TYPECACHE_BTREE_OPFAMILY);

	return at < index->rd_index->indnkeyatts &&
		index->rd_index->indkey.values[at] == attnum &&
		index->rd_opfamily[at] == type->btree_opf &&
		index->rd_indcollation[at] == attribute->attcollation;
}

/* Does it begin with these two, in whichever order? */
static bool
turn_and_status(TlIndexTable *table, Relation index)
{
	bool		swapped = is_first(table, index, 0, table->status);

	return is_first(table, index, swapped, table->turn) &&
		is_first(table, index, !swapped, table->status);
}

/*
 * Does it have rows of one status in the table's order, forwards or backwards?
 * There may be another column that is the same in all of them.
 */
static bool
keeps_order(TlIndexTable *table, Relation index, AttrNumber same)
{
	TlJobTableInfo *info = table->info;
	bool		forwards = true;
	bool		backwards = true;
	int			at = 0;

	for (int i = 0; i < info->norder; i++)
	{
		TlJobOrder *order = &info->order_columns[i];
		AttrNumber	attnum;
		bool		same_way;
		bool		same_nulls;

		attnum = get_attnum(RelationGetRelid(table->rel),
							get_attname(info->relation, order->attnum, false));
		if (attnum == table->status || attnum == same)
			continue;
		while (is_first(table, index, at, table->status) ||
			   (same != InvalidAttrNumber &&
				is_first(table, index, at, same)))
			at++;
		if (!is_first(table, index, at, attnum))
			return false;
		same_way = order->desc ==
			((index->rd_indoption[at] & INDOPTION_DESC) != 0);
		same_nulls = order->nulls_first ==
			((index->rd_indoption[at] & INDOPTION_NULLS_FIRST) != 0);
		forwards = forwards && same_way && same_nulls;
		backwards = backwards && !same_way && !same_nulls;
		at++;
	}
	return forwards || backwards;
}

/*
 * The statement
 */

/* Can a column of the type be in an index? */
static bool
has_order(Oid type)
{
	return OidIsValid(lookup_type_cache(type,
										TYPECACHE_BTREE_OPFAMILY)->btree_opf);
}

static void
append_column(StringInfo buf, int *n, const char *name)
{
	appendStringInfo(buf, "%s%s", *n > 0 ? ", " : "", quote_identifier(name));
	(*n)++;
}

/* The columns of the order, but for those in which all rows are the same. */
static void
append_order(StringInfo buf, int *n, TlJobTableInfo *info, AttrNumber same)
{
	for (int i = 0; i < info->norder; i++)
	{
		TlJobOrder *order = &info->order_columns[i];

		if (order->attnum == info->status.attnum || order->attnum == same)
			continue;
		append_column(buf, n, get_attname(info->relation, order->attnum,
										  false));
		if (order->desc)
			appendStringInfoString(buf, " DESC");
		if (order->nulls_first != order->desc)
			appendStringInfo(buf, " NULLS %s",
							 order->nulls_first ? "FIRST" : "LAST");
	}
}

/* With the operator that our statements use, or one that is found as well. */
static void
append_status(StringInfo buf, TlJobTableInfo *info, TlJobStatus status)
{
	TlJobColumn *column = &info->status;

	if (strncmp(column->equals, "OPERATOR(pg_catalog.", 20) == 0)
	{
		char	   *value = OutputFunctionCall(&column->output,
											   info->statuses[status]);

		/* what a char(n) is filled up with need not be written */
		for (int i = strlen(value) - 1;
			 column->type == BPCHAROID && i >= 0 && value[i] == ' '; i--)
			value[i] = '\0';
		appendStringInfo(buf, "%s = %s", column->target,
						 quote_literal_cstr(value));
	}
	else
		appendStringInfo(buf, "%s %s %s", column->target, column->equals,
						 info->literals[status]);
}

static bool
is_in_order(TlJobTableInfo *info, AttrNumber attnum)
{
	for (int i = 0; i < info->norder; i++)
		if (info->order_columns[i].attnum == attnum)
			return true;
	return false;
}

/* Append the statement, unless there is no such index. */
static void
append_index(StringInfo all, TlJobTableInfo *info, TlIndexUse use)
{
	StringInfoData buf;
	bool		both = use >= TL_USE_TURN_READY ||
		(use == TL_USE_READY && has_order(info->status.type));
	int			n = 0;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE INDEX ON %s (", info->name);
	switch (use)
	{
		case TL_USE_ID:
			append_column(&buf, &n, info->id.raw_name);
			break;
		case TL_USE_READY:
			if (both)
				append_column(&buf, &n, info->status.raw_name);
			append_order(&buf, &n, info, InvalidAttrNumber);

			/* rows that are not due are told by their entries */
			if (info->run_at.attnum != InvalidAttrNumber &&
				!info->run_at_may_be_null &&
				!is_in_order(info, info->run_at.attnum))
				append_column(&buf, &n, info->run_at.raw_name);
			break;
		case TL_USE_OWNED:
			if (has_order(info->sid.type))
				append_column(&buf, &n, info->sid.raw_name);
			append_order(&buf, &n, info, info->sid.attnum);
			break;
		case TL_USE_TURN_READY:
		case TL_USE_TURN_CLAIMED:
			append_column(&buf, &n, info->turn.raw_name);
			append_column(&buf, &n, info->status.raw_name);
			append_order(&buf, &n, info, info->turn.attnum);
			break;
	}
	appendStringInfoChar(&buf, ')');
	if (n > INDEX_MAX_KEYS)
		return;
	if (use != TL_USE_ID)
		appendStringInfoString(&buf, " WHERE ");
	if (use == TL_USE_READY || both)
		append_status(&buf, info, TL_JOB_READY);
	if (both)
		appendStringInfoString(&buf, " OR ");
	if (both || use == TL_USE_OWNED)
		append_status(&buf, info, TL_JOB_CLAIMED);
	appendStringInfo(all, "%s%s", all->len > 0 ? "; " : "", buf.data);
}

/*
 * For the view job_tables
 */

/*
 * Lock a table and its partitions, unless that has to be waited for: who
 * looks at the view must not be held up by a table that is being altered.
 */
static bool
lock_at_once(Oid relation)
{
	List	   *tables;
	ListCell   *cell;

	if (!ConditionalLockRelationOid(relation, AccessShareLock))
		return false;
	if (get_rel_name(relation) == NULL ||
		isOtherTempNamespace(get_rel_namespace(relation)))
		return false;
	if (get_rel_relkind(relation) != RELKIND_PARTITIONED_TABLE)
		return true;
	tables = find_all_inheritors(relation, NoLock, NULL);
	foreach(cell, tables)
		if (!ConditionalLockRelationOid(lfirst_oid(cell), AccessShareLock))
			return false;
	return true;
}

/* Is this an error of the table, its settings, or of the moment? */
static bool
is_of_table(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_FEATURE_NOT_SUPPORTED:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
		case ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION:
			return true;
	}
	return false;
}

/* As the table's owner: functions of its making run here. */
static char *
missing_index_of(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;
	Oid			user;
	int			sec_context;
	int			level;
	TlJobTableInfo *info;
	char	   *statement;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);

	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(owner,
						   sec_context | SECURITY_RESTRICTED_OPERATION);
	level = NewGUCNestLevel();
	info = tl_job_describe(relation);
	statement = tl_job_missing_index(info);
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, sec_context);
	return statement;
}

/*
 * tokenlock_missing_index(job_table regclass) returns text
 *
 * NULL also for tables that cannot be claimed from.  In a subtransaction that
 * is undone in any case, so that no lock stays.
 */
Datum
tokenlock_missing_index(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *volatile statement = NULL;

	tl_session_attach();
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		if (lock_at_once(relation))
			statement = missing_index_of(relation);
	}
	PG_CATCH();
	{
		if (!is_of_table(geterrcode()))
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		statement = NULL;
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (statement == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(statement));
}
