/*-------------------------------------------------------------------------
 *
 * job_sql.h
 *	  What the statements on job tables are made of.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_SQL_H
#define TOKENLOCK_JOB_SQL_H

#include "job_table.h"

#include "lib/stringinfo.h"

/*
 * Append the condition for ready rows; the parameter is the present time.
 * With 0 in its place, rows that are not due yet count, too.
 */
extern void tl_job_append_ready(StringInfo buf, const TlJobTableInfo *info,
								int time_param);

/*
 * Append the columns that locked rows are read from, and take over the rows
 * that a statement has found.
 */
extern void tl_job_append_columns(StringInfo buf, TlJobTableInfo *info);
extern void tl_job_add_rows(TlJobTableInfo *info, TlJobRows *rows);

/*
 * Append the condition for rows that a sid has claimed, which is in that
 * parameter; with 0 in its place, for those that are claimed without a sid.
 */
extern void tl_job_append_owned(StringInfo buf, TlJobTableInfo *info,
								int sid_param);

/*
 * Append the test whether all attempts at a row are used up; nothing, if their
 * number has no end.
 */
extern void tl_job_append_used_up(StringInfo buf, TlJobTableInfo *info);

/*
 * Append the condition for rows that are listed in the first parameter, which
 * is to have the type that is returned, and those rows as its value.
 */
extern Oid	tl_job_append_listed(StringInfo buf, TlJobTableInfo *info);
extern Datum tl_job_row_array(TlJobTableInfo *info, const TlJobRows *rows);

/* The statements that go with lists of ids of a type. */
extern TlJobListPlan *tl_job_list_plan(TlJobTableInfo *info, Oid array_type);

#endif							/* TOKENLOCK_JOB_SQL_H */
