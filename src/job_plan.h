/*-------------------------------------------------------------------------
 *
 * job_plan.h
 *	  The plans of the statements on job tables, and executing them.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_PLAN_H
#define TOKENLOCK_JOB_PLAN_H

#include "job_table.h"

#include "executor/spi.h"

/* Prepare a statement with n parameters of these types, and keep it. */
extern void tl_plan_prepare(TlJobPlan *plan, const char *statement, int n,
							Oid *types);

/*
 * Prepare one that finds rows by id, and asks in subqueries about the rows of
 * a key.  It is planned so that the first goes by an index on the id and the
 * latter by one on the key and the status, if there are such.
 */
extern void tl_plan_prepare_by_turn(TlJobTableInfo *info, TlJobPlan *plan,
									const char *statement, int n, Oid *types);

/* Called from _PG_init. */
extern void tl_plan_init(void);

/*
 * Execute a statement; the result is in SPI_tuptable.  Raises an error unless
 * SPI answers what is expected; returns the number of rows.
 */
extern uint64 tl_plan_execute(TlJobPlan *plan, Datum *values,
							  const char *nulls, int expected);

/* The same for one that only reads, with a snapshot of this moment. */
extern uint64 tl_plan_execute_latest(TlJobPlan *plan, Datum *values,
									 const char *nulls);

/* Open a cursor on the result of one that only reads. */
extern Portal tl_plan_open(TlJobPlan *plan, Datum *values, const char *nulls);

/* Execute one that locks rows, which may have moved meanwhile. */
extern void tl_plan_execute_lock(TlJobTableInfo *info, TlJobPlan *plan,
								 Datum *values, const char *nulls);

/* How many rows this backend has locked so far. */
extern uint64 tl_plan_rows_locked(void);

/* Is this an UPDATE of what a scan of that index finds, and nothing else? */
extern bool tl_plan_is_scan_of(TlJobPlan *plan, Oid index);

#endif							/* TOKENLOCK_JOB_PLAN_H */
