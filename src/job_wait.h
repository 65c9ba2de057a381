/*-------------------------------------------------------------------------
 *
 * job_wait.h
 *	  Waiting for jobs, and waking those who wait.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_WAIT_H
#define TOKENLOCK_JOB_WAIT_H

#include "job_table.h"

/* Prepare this backend; before it does anything that is to wake others. */
extern void tl_job_wait_attach(void);

/*
 * Waking.  All that may make jobs ready has to call one of these.
 *
 * tl_job_wake is for when others can see what was done, and cannot fail.
 * tl_job_wake_at_commit notes a table, and those it is a partition of, for when
 * this transaction commits; a rollback to a savepoint takes it back.
 * tl_job_wake_at_abort notes that rows are about to be locked, which others may
 * have passed by for that when it turns out to have been for nothing.
 * tl_job_wake_database is for what is not told in detail: the end of a
 * prepared transaction.  It also has claimers start from the beginning.
 */
extern void tl_job_wake(Oid relation);
extern void tl_job_wake_at_commit(Oid relation);
extern void tl_job_wake_at_abort(Oid relation);
extern void tl_job_wake_database(void);

/*
 * Statements of our own that change jobs are no news for those who wait.  To
 * be called before such a statement and after it.  An error ends it, too.
 */
extern void tl_job_wake_begin_own(Oid relation);
extern void tl_job_wake_end_own(void);

/* Is it our own statement whose update of this table has fired the trigger? */
extern bool tl_job_wake_is_own(Oid relation);

/*
 * Waiting.  Join the line, look at the table with a snapshot of after that,
 * and as long as the look is in vain say so and sleep, until it is time to
 * look again; and leave the line.  Errors, and the end of the session, leave
 * it, too.
 *
 * The time at which the next job comes due (TL_NEVER: none does) is asked for
 * with tl_job_next_due.  Other waiters that it concerns are told.
 *
 * tl_job_wait_sleep answers true when the time is up: the look that follows is
 * the last one.  No snapshot need be there meanwhile.
 */
extern void tl_job_wait_join(TlJobTableInfo *info);
extern void tl_job_wait_in_vain(TlJobTableInfo *info, TlTime due);
extern bool tl_job_wait_sleep(TlTime deadline);

/*
 * With jobs that were found: "handed out", or only seen, which is to be
 * looked after once more, if they are not handed out soon.
 */
extern void tl_job_wait_leave(TlJobTableInfo *info, bool found, bool handed_out,
							  TlTime due);

/* Are there others that wait? */
extern bool tl_job_wait_others(Oid relation);

/* A claim got all it asked for, and may have left jobs for others. */
extern void tl_job_wait_hand_on(Oid relation);

#endif							/* TOKENLOCK_JOB_WAIT_H */
