/*-------------------------------------------------------------------------
 *
 * job_parse.h
 *	  Settings of job tables that are pieces of SQL: an order, a condition.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_PARSE_H
#define TOKENLOCK_JOB_PARSE_H

#include "job_table.h"

#include "utils/rel.h"

/*
 * What stands behind ORDER BY, for a list of columns with directions: the
 * key comes last, so that the order is complete.  NULL if it is the key's
 * order anyway.  Also set info->order_columns; without a text to the key.
 */
extern char *tl_job_parse_order(TlJobTableInfo *info, Relation rel,
								const char *text);

/* An expression of ours, which is known to be one, as the grammar has it. */
extern Node *tl_job_parse_expression(const char *text);

/* An expression in parentheses. */
extern char *tl_job_parse_condition(TlJobTableInfo *info, const char *text);

#endif							/* TOKENLOCK_JOB_PARSE_H */
