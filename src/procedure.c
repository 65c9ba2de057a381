/*-------------------------------------------------------------------------
 *
 * procedure.c
 *	  Procedures that end their transaction in order to wait.
 *
 * A statement that waits has a snapshot, and with it holds back vacuum and
 * CREATE INDEX CONCURRENTLY.  A procedure may end its transaction and wait in
 * one that has none.  It must not commit what its caller did before, so it
 * refuses where there is something to commit.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "hold.h"
#include "nodes/parsenodes.h"
#include "procedure.h"

/*
 * Has the transaction executed NOTIFY or LISTEN?  That assigns no transaction
 * id, and only the check that PREPARE makes knows of it.
 */
static bool
has_notified(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool notified = false;

	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		/* it has only looked, so there is nothing to roll back */
		MemoryContextSwitchTo(context);
		FlushErrorState();
		notified = true;
	}
	PG_END_TRY();
	return notified;
}

void
tl_procedure_check(FunctionCallInfo fcinfo, const char *name,
				   const char *instead)
{
	CallContext *context = (CallContext *) fcinfo->context;

	if (context == NULL || !IsA(context, CallContext) || context->atomic ||
		IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", name),
				 errhint("Call it outside of BEGIN, functions and EXCEPTION blocks, as a statement of its own; inside, use %s.",
						 instead)));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		tl_hold_in_use() || has_notified())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run in a transaction that has done work",
						name),
				 errdetail("It would have to commit that work in order to wait without a snapshot."),
				 errhint("Commit first, or use %s.", instead)));
}
