/*-------------------------------------------------------------------------
 *
 * tokenlock.c
 *	  Loading the library: settings and hooks.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "database.h"
#include "drop.h"
#include "fmgr.h"
#include "hold.h"
#include "job_wait.h"
#include "job_wake.h"
#include "jobs.h"
#include "miscadmin.h"
#include "recover.h"
#include "shmem.h"
#include "statefile.h"
#include "stats.h"
#include "tcop/utility.h"
#include "token.h"
#include "tokenlock.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

int			tl_memory;
int			tl_default_ttl;
int			tl_grace;
int			tl_job_ttl;
bool		tl_session_tokens;

static ProcessUtility_hook_type prev_process_utility = NULL;

extern PGDLLEXPORT void _PG_init(void);

static void tl_process_utility(PlannedStmt *pstmt, const char *queryString,
							   bool readOnlyTree,
							   ProcessUtilityContext context,
							   ParamListInfo params,
							   QueryEnvironment *queryEnv,
							   DestReceiver *dest, QueryCompletion *qc);

void
_PG_init(void)
{
	DefineCustomIntVariable("tokenlock.default_ttl",
							"How long a lease lasts when the request does not say.",
							NULL,
							&tl_default_ttl,
							60 * 1000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("tokenlock.grace",
							"The longest time that nothing is granted after a crash or failover.",
							"Leases that are longer are written to disk, and survive.",
							&tl_grace,
							2 * 60 * 1000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("tokenlock.job_ttl",
							"How long a worker counts as alive after its last call, when the call does not say.",
							NULL,
							&tl_job_ttl,
							5 * 60 * 1000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("tokenlock.session_tokens",
							 "Lets sessions hold tokens beyond a transaction without naming an owner.",
							 "Switch it off for roles or databases behind a transaction pooler, where such a token would strand on a server connection.",
							 &tl_session_tokens,
							 true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	/*
	 * Shared memory can be had only while the server starts.  Loaded later,
	 * each function raises the error that says so.
	 */
	if (process_shared_preload_libraries_in_progress)
	{
		DefineCustomIntVariable("tokenlock.memory",
								"Shared memory for tokens, waiters and workers.",
								NULL,
								&tl_memory,
								64 * 1024, 1024, MAX_KILOBYTES,
								PGC_POSTMASTER, GUC_UNIT_KB,
								NULL, NULL, NULL);
		tl_database_init();
		tl_drop_init();
		tl_recover_init();
		tl_stats_init();
		tl_token_init();
		tl_jobs_init();
		tl_statefile_init();
		tl_shmem_init();

		prev_process_utility = ProcessUtility_hook;
		ProcessUtility_hook = tl_process_utility;
	}
	MarkGUCPrefixReserved("tokenlock");
}

static void
tl_process_utility(PlannedStmt *pstmt, const char *queryString,
				   bool readOnlyTree, ProcessUtilityContext context,
				   ParamListInfo params, QueryEnvironment *queryEnv,
				   DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	bool		discard_all = IsA(statement, DiscardStmt) &&
		((DiscardStmt *) statement)->target == DISCARD_ALL;
	bool		end_prepared = IsA(statement, TransactionStmt) &&
		(((TransactionStmt *) statement)->kind == TRANS_STMT_COMMIT_PREPARED ||
		 ((TransactionStmt *) statement)->kind == TRANS_STMT_ROLLBACK_PREPARED);

	/* now, as it could fail */
	if (end_prepared)
		tl_job_wait_attach();

	if (IsA(statement, DropdbStmt))
	{
		Oid			database;

		database = get_database_oid(((DropdbStmt *) statement)->dbname, true);
		if (OidIsValid(database))
			tl_drop_note_database(database);
	}

	if (prev_process_utility)
		prev_process_utility(pstmt, queryString, readOnlyTree, context,
							 params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);

	/* no callback has run for what it did; others see it already */
	if (end_prepared)
		tl_job_wake_database();

	tl_wake_after_utility(statement);

	/* only after it succeeded: it is refused in a transaction block */
	if (discard_all)
		tl_hold_discard();
}
