/*-------------------------------------------------------------------------
 *
 * job_warn.c
 *	  What a claim warns of.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "clock.h"
#include "compat.h"
#include "describe.h"
#include "job_index.h"
#include "job_warn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/*
 * How long a session is given to end whose client may be gone already: the
 * server hears of that a moment later than whoever has started a new client.
 */
#define TL_END_TIME		(200 * 1000)	/* us */
#define TL_END_PAUSE	5		/* ms */

/*
 * How many pages a claim may look into without being suspicious, and how many
 * more for each row: it may lie anywhere, and so may its index entry.  In a
 * table of fewer pages it looks into some of them many times, which is quick.
 */
#define TL_MANY_PAGES	500
#define TL_ROW_PAGES	10
#define TL_LARGE_PAGES	250

/* Does another session stay that was handed rows of this worker last? */
static bool
other_stays(const TlKey *worker, TlWorkerSession *session)
{
	TlTime		end = tl_now() + TL_END_TIME;

	while (tl_worker_other_session(worker, session))
	{
		if (tl_now() >= end)
			return true;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TL_END_PAUSE, tl_wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return false;
}

void
tl_job_warn_shared(const TlJobCall *call)
{
	TlWorkerSession session;

	/*
	 * Behind a pooler in transaction mode, which this setting is for, one
	 * worker has many sessions, and they tell nothing.
	 */
	if (!tl_session_tokens || !call->state.live || call->state.shared_told)
		return;
	if (!other_stays(&call->worker, &session) ||
		!tl_worker_tell_shared(&call->worker))
		return;
	ereport(WARNING,
			(errmsg("two processes seem to share sid \"%s\" of job table \"%s\"",
					tl_key_name(&call->worker),
					get_rel_name(call->info->relation)),
			 tl_may_see(session.role) ?
			 errdetail("Its jobs are handed out again, while process %d, which got some of them last, is still connected.",
					   session.pid) :
			 errdetail("Its jobs are handed out again, while another session, which got some of them last, is still connected."),
			 errhint("Give each process a sid of its own.  If a pooler in transaction mode gives one process many sessions, set tokenlock.session_tokens to off.")));
}

static bool
is_large(const TlJobTableInfo *info)
{
	int64		pages = 0;
	ListCell   *cell;

	foreach(cell, info->leaves)
	{
		Relation	rel = table_open(lfirst_oid(cell), AccessShareLock);

		pages += RelationGetNumberOfBlocks(rel);
		table_close(rel, NoLock);
	}
	return pages >= TL_LARGE_PAGES;
}

void
tl_job_warn_index(TlJobTableInfo *info, int64 n)
{
	char	   *statement;

	if (likely(info->pages_read < TL_MANY_PAGES + n * TL_ROW_PAGES) ||
		info->index_looked || !is_large(info))
		return;
	info->index_looked = true;
	statement = tl_job_missing_index(info);
	if (statement == NULL || !tl_job_first_index_warning(info->relation))
		return;
	ereport(WARNING,
			(errmsg("job table \"%s\" lacks an index",
					get_rel_name(info->relation)),
			 errdetail("A claim looked into " INT64_FORMAT " pages to find " INT64_FORMAT " rows.",
					   info->pages_read, n),
			 errhint("Run: %s", statement)));
}
