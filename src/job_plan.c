/*-------------------------------------------------------------------------
 *
 * job_plan.c
 *	  The plans of the statements on job tables, and executing them.
 *
 * Plans are made once, without parameter values, and with all but plans in
 * index order switched off.  The planner would choose differently while a
 * table is empty, and that plan would stay; and the caller's settings are
 * nothing that the speed of a queue should depend on.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_am.h"
#include "compat.h"
#include "job_plan.h"
#include "job_wait.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* How often rows may move away from under one statement. */
#define TL_MOVED_TRIES	100

static uint64 rows_locked = 0;

/* While a plan is made that goes by turns: the table. */
static const TlJobTableInfo *planning = NULL;

static tl_table_hook_type prev_table_hook = NULL;

static void make_plan(TlJobPlan *plan);
static void choose_indexes(TL_TABLE_HOOK_PARAMETERS);

void
tl_plan_init(void)
{
	prev_table_hook = tl_table_hook;
	tl_table_hook = choose_indexes;
}

void
tl_plan_prepare(TlJobPlan *plan, const char *statement, int n, Oid *types)
{
	SPIPlanPtr	made = SPI_prepare_cursor(statement, n, types,
										  CURSOR_OPT_GENERIC_PLAN);

	if (made == NULL)
		elog(ERROR, "could not prepare a statement: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(made) != 0)
		elog(ERROR, "could not keep a statement");
	plan->plan = made;
	plan->generation = -1;
}

void
tl_plan_prepare_by_turn(TlJobTableInfo *info, TlJobPlan *plan,
						const char *statement, int n, Oid *types)
{
	tl_plan_prepare(plan, statement, n, types);
	plan->info = info;
}

/* Does the index serve, by its first columns? */
static bool
suits(const IndexOptInfo *index, AttrNumber first, AttrNumber second)
{
	if (index->relam != BTREE_AM_OID || index->indexkeys[0] != first)
		return false;
	if (second == InvalidAttrNumber)
		return index->indpred == NIL;
	return index->nkeycolumns > 1 && index->indexkeys[1] == second;
}

/*
 * Leave the planner only the indexes that are made for the purpose.  From
 * what it knows of a table at one time, an index of all claimed rows may seem
 * to have next to none, and the first row of the first key to be the first of
 * all; the plan would be used when there are many.
 */
static void
choose_indexes(TL_TABLE_HOOK_PARAMETERS)
{
	Oid			relation = TL_TABLE_HOOK_RELATION;
	bool		of_turn = root->query_level > 1;
	List	   *suiting = NIL;
	ListCell   *cell;
	AttrNumber	first;
	AttrNumber	second;

	if (prev_table_hook)
		prev_table_hook(TL_TABLE_HOOK_ARGUMENTS);
	if (planning == NULL || (relation != planning->relation &&
							 !list_member_oid(planning->leaves, relation)))
		return;
	first = get_attnum(relation, of_turn ? planning->turn.raw_name :
					   planning->id.raw_name);
	second = of_turn ? get_attnum(relation, planning->status.raw_name) :
		InvalidAttrNumber;
	foreach(cell, rel->indexlist)
		if (suits(lfirst(cell), first, second))
			suiting = lappend(suiting, lfirst(cell));
	if (suiting != NIL)
		rel->indexlist = suiting;
}

static void
set_for_now(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

int
tl_job_begin_path(const TlJobTableInfo *info)
{
	int			level;

	if (info->ready_when == NULL)
		return 0;
	level = NewGUCNestLevel();
	set_for_now("search_path", "pg_catalog, pg_temp");
	return level;
}

void
tl_job_end_path(int level)
{
	if (level > 0)
		AtEOXact_GUC(true, level);
}

/* Switch off what is not in index order, and what the caller has set. */
static int
begin_planning(const TlJobPlan *plan)
{
	int			level = NewGUCNestLevel();

	set_for_now("plan_cache_mode", "auto");
	set_for_now("enable_seqscan", "off");
	set_for_now("enable_bitmapscan", "off");
	set_for_now("enable_sort", plan->may_sort ? "on" : "off");
	set_for_now("enable_indexscan", "on");
	set_for_now("enable_tidscan", "on");
	set_for_now("jit", "off");
	return level;
}

static CachedPlanSource *
plan_source(TlJobPlan *plan)
{
	return (CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan->plan));
}

/* Is the plan there that we have made, or did somebody else plan anew? */
static bool
is_planned(TlJobPlan *plan)
{
	CachedPlanSource *source = plan_source(plan);

	return source->is_valid && source->gplan && source->gplan->is_valid &&
		source->generation == plan->generation;
}

static void
make_plan(TlJobPlan *plan)
{
	int			level = begin_planning(plan);
	CachedPlanSource *source = plan_source(plan);
	CachedPlan *cached;

	/* it may be in use further up, so do not free it */
	if (source->gplan)
		source->gplan->is_valid = false;
	PG_TRY();
	{
		planning = plan->info;
		cached = SPI_plan_get_cached_plan(plan->plan);
	}
	PG_FINALLY();
	{
		planning = NULL;
	}
	PG_END_TRY();
	if (cached == NULL)
		elog(ERROR, "could not plan a statement");
	ReleaseCachedPlan(cached, CurrentResourceOwner);
	plan->generation = source->generation;
	AtEOXact_GUC(true, level);
}

/* See to it that a statement is executed with our plan. */
static int
begin_execution(TlJobPlan *plan)
{
	if (unlikely(!is_planned(plan)))
		make_plan(plan);
	return unlikely(plan_cache_mode == PLAN_CACHE_MODE_FORCE_CUSTOM_PLAN) ?
		begin_planning(plan) : 0;
}

static void
end_execution(int level)
{
	if (unlikely(level > 0))
		AtEOXact_GUC(true, level);
}

/* Execute a statement; the result is in SPI_tuptable. */
uint64
tl_plan_execute(TlJobPlan *plan, Datum *values, const char *nulls, int expected)
{
	int			level = begin_execution(plan);
	int			code = SPI_execute_plan(plan->plan, values, nulls, false, 0);

	end_execution(level);
	if (code != expected)
		elog(ERROR, "a statement on jobs failed: %s",
			 SPI_result_code_string(code));
	return SPI_processed;
}

uint64
tl_plan_execute_latest(TlJobPlan *plan, Datum *values, const char *nulls)
{
	int			level = begin_execution(plan);
	int			code = SPI_execute_snapshot(plan->plan, values, nulls,
											GetLatestSnapshot(),
											InvalidSnapshot, false, true, 0);

	end_execution(level);
	if (code != SPI_OK_SELECT)
		elog(ERROR, "a look at jobs failed: %s",
			 SPI_result_code_string(code));
	return SPI_processed;
}

Portal
tl_plan_open(TlJobPlan *plan, Datum *values, const char *nulls)
{
	int			level = begin_execution(plan);
	Portal		portal = SPI_cursor_open(NULL, plan->plan, values, nulls,
										 false);

	end_execution(level);
	return portal;
}

/*
 * Execute a statement that locks rows.
 *
 * Where an update moves rows between partitions, a row that was moved since the
 * statement's snapshot was taken is an error even under READ COMMITTED, as
 * its new version cannot be followed.  It was changed: look again.
 */
void
tl_plan_execute_lock(TlJobTableInfo *info, TlJobPlan *plan, Datum *values,
			 const char *nulls)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	tl_job_wake_at_abort(info->relation);
	if (!info->moving || IsolationUsesXactSnapshot())
	{
		rows_locked += tl_plan_execute(plan, values, nulls, SPI_OK_SELECT);
		return;
	}
	for (volatile int tries = 1;; tries++)
	{
		volatile bool found = false;

		BeginInternalSubTransaction(NULL);
		MemoryContextSwitchTo(context);
		PG_TRY();
		{
			rows_locked += tl_plan_execute(plan, values, nulls,
										   SPI_OK_SELECT);
			found = true;
		}
		PG_CATCH();
		{
			if (geterrcode() != ERRCODE_T_R_SERIALIZATION_FAILURE ||
				tries == TL_MOVED_TRIES)
				PG_RE_THROW();
			MemoryContextSwitchTo(context);
			FlushErrorState();
		}
		PG_END_TRY();
		if (found)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (found)
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

uint64
tl_plan_rows_locked(void)
{
	return rows_locked;
}

/* Is this an UPDATE of what a scan of that index finds, and nothing else? */
bool
tl_plan_is_scan_of(TlJobPlan *plan, Oid index)
{
	PlannedStmt *statement;
	Plan	   *child;

	if (!is_planned(plan))
		make_plan(plan);
	if (plan_source(plan)->gplan->stmt_list == NIL)
		return false;
	statement = linitial_node(PlannedStmt, plan_source(plan)->gplan->stmt_list);
	if (!IsA(statement->planTree, ModifyTable))
		return false;
	child = outerPlan(statement->planTree);
	return child != NULL && IsA(child, IndexScan) &&
		((IndexScan *) child)->indexid == index;
}

static void
free_plan(TlJobPlan *plan)
{
	if (plan->plan)
		SPI_freeplan(plan->plan);
}

void
tl_job_free_plans(TlJobTableInfo *info)
{
	TlJobPlan  *find = &info->find[0][0][0][0];

	for (Size i = 0; i < sizeof(info->find) / sizeof(TlJobPlan); i++)
		free_plan(&find[i]);
	for (Size i = 0; i < 4; i++)
		free_plan(&info->count[i / 2][i % 2]);
	for (Size i = 0; i < lengthof(info->set); i++)
		free_plan(&info->set[i]);
	free_plan(&info->sort);
	free_plan(&info->due);
	for (Size i = 0; i < 6; i++)
		free_plan(&info->peek[i / 2][i % 2]);
	for (Size i = 0; i < 6; i++)
		free_plan(&info->walk[i / 2][i % 2]);
	free_plan(&info->walk_turns);
	free_plan(&info->verify[false]);
	free_plan(&info->verify[true]);
	free_plan(&info->heads);
	for (Size i = 0; i < 4; i++)
		free_plan(&info->fail[i / 2][i % 2]);
	for (TlJobListPlan *list = info->lists; list; list = list->next)
	{
		free_plan(&list->lock);
		free_plan(&list->finish);
	}
}
