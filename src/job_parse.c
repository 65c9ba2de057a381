/*-------------------------------------------------------------------------
 *
 * job_parse.c
 *	  Settings of job tables that are pieces of SQL: an order, a condition.
 *
 * They become part of our statements, so it is for the server's own grammar to
 * say that each is what it has to be and nothing more.  Whether its columns
 * and types fit shows when a statement is prepared.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job_parse.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* What an error of the grammar is about. */
typedef struct TlParseContext
{
	TlJobTableInfo *info;
	TlJobSetting setting;
	const char *statement;
} TlParseContext;

static void
parse_context(void *arg)
{
	TlParseContext *context = arg;
	int			position = geterrposition();

	/* it points into the statement made here, not into the caller's */
	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(context->statement);
	}
	errcontext("setting %s of job table %s",
			   tl_setting_names[context->setting], context->info->name);
}

/* Parse a SELECT that has a target list or an order, and nothing else. */
static SelectStmt *
parse_select(TlJobTableInfo *info, TlJobSetting setting,
			 const char *statement)
{
	TlParseContext context = {info, setting, statement};
	ErrorContextCallback callback;
	List	   *parsed;
	SelectStmt *select;

	callback.callback = parse_context;
	callback.arg = &context;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	parsed = raw_parser(statement, RAW_PARSE_DEFAULT);
	error_context_stack = callback.previous;

	if (list_length(parsed) != 1)
		return NULL;
	select = (SelectStmt *) linitial_node(RawStmt, parsed)->stmt;
	if (!IsA(select, SelectStmt) || select->op != SETOP_NONE ||
		select->distinctClause || select->intoClause || select->fromClause ||
		select->whereClause || select->groupClause || select->havingClause ||
		select->windowClause || select->valuesLists || select->limitOffset ||
		select->limitCount || select->lockingClause || select->withClause)
		return NULL;
	return select;
}

/* The name of a column that stands alone; NULL if it is something else. */
static char *
plain_column(Node *node)
{
	ColumnRef  *ref = (ColumnRef *) node;

	if (!IsA(node, ColumnRef) || list_length(ref->fields) != 1 ||
		!IsA(linitial(ref->fields), String))
		return NULL;
	return strVal(linitial(ref->fields));
}

/* Note a column of the order; one that was there already decides nothing. */
static void
note_order(TlJobTableInfo *info, AttrNumber attnum, bool desc,
		   bool nulls_first)
{
	TlJobOrder *order;

	for (int i = 0; i < info->norder; i++)
		if (info->order_columns[i].attnum == attnum)
			return;
	order = &info->order_columns[info->norder++];
	order->attnum = attnum;
	order->desc = desc;
	order->nulls_first = nulls_first;
}

/* Append a column with its direction, and return its number. */
static AttrNumber
append_order(StringInfo buf, TlJobTableInfo *info, Relation rel, SortBy *sort)
{
	char	   *name = plain_column(sort->node);
	AttrNumber	attnum;

	if (name == NULL || sort->sortby_dir == SORTBY_USING)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("order_by must be a list of columns"),
				 errhint("Write it as in ORDER BY, for example 'priority DESC, id'.")));
	attnum = get_attnum(RelationGetRelid(rel), name);
	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("cannot claim jobs from table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("It has no column \"%s\".", name),
				 errhint("Name the order with job_table_set(..., order_by => ...).")));
	appendStringInfo(buf, "%s.%s", info->alias, quote_identifier(name));
	if (sort->sortby_dir == SORTBY_DESC)
		appendStringInfoString(buf, " DESC");
	if (sort->sortby_nulls == SORTBY_NULLS_FIRST)
		appendStringInfoString(buf, " NULLS FIRST");
	else if (sort->sortby_nulls == SORTBY_NULLS_LAST)
		appendStringInfoString(buf, " NULLS LAST");
	note_order(info, attnum, sort->sortby_dir == SORTBY_DESC,
			   sort->sortby_nulls == SORTBY_NULLS_DEFAULT ?
			   sort->sortby_dir == SORTBY_DESC :
			   sort->sortby_nulls == SORTBY_NULLS_FIRST);
	return attnum;
}

char *
tl_job_parse_order(TlJobTableInfo *info, Relation rel, const char *text)
{
	SelectStmt *select;
	StringInfoData buf;
	bool		has_key = false;
	ListCell   *cell;

	info->order_columns =
		palloc(sizeof(TlJobOrder) * RelationGetNumberOfAttributes(rel));
	info->norder = 0;
	if (text == NULL)
	{
		note_order(info, info->id.attnum, false, false);
		return NULL;
	}
	select = parse_select(info, TL_SET_ORDER_BY,
						  psprintf("SELECT ORDER BY %s\n", text));
	if (select == NULL || select->targetList || select->sortClause == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("order_by must be a list of columns"),
				 errhint("Write it as in ORDER BY, for example 'priority DESC, id'.")));
	initStringInfo(&buf);
	foreach(cell, select->sortClause)
	{
		SortBy	   *sort = lfirst_node(SortBy, cell);

		if (buf.len > 0)
			appendStringInfoString(&buf, ", ");
		if (append_order(&buf, info, rel, sort) != info->id.attnum)
			continue;

		/* what comes behind it decides nothing */
		has_key = true;
		break;
	}
	if (strcmp(buf.data, info->id.name) == 0)
		return NULL;
	if (!has_key)
	{
		appendStringInfo(&buf, ", %s", info->id.name);
		note_order(info, info->id.attnum, false, false);
	}
	return buf.data;
}

Node *
tl_job_parse_expression(const char *text)
{
	List	   *parsed = raw_parser(psprintf("SELECT %s", text),
									RAW_PARSE_DEFAULT);
	SelectStmt *select = (SelectStmt *) linitial_node(RawStmt, parsed)->stmt;

	return linitial_node(ResTarget, select->targetList)->val;
}

static bool
has_parameter(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ParamRef))
		return true;
	return raw_expression_tree_walker(node, has_parameter, context);
}

char *
tl_job_parse_condition(TlJobTableInfo *info, const char *text)
{
	SelectStmt *select = parse_select(info, TL_SET_READY_WHEN,
									  psprintf("SELECT %s\n", text));
	ResTarget  *target = select && list_length(select->targetList) == 1 ?
		linitial_node(ResTarget, select->targetList) : NULL;

	/* as it is one without parentheses, it cannot break out of them */
	if (target == NULL || target->name || select->sortClause ||
		has_parameter(target->val, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ready_when must be a condition on a row"),
				 errhint("Write it as in WHERE, for example 'NOT blocked'.")));
	return psprintf("(%s\n)", text);
}
