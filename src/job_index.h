/*-------------------------------------------------------------------------
 *
 * job_index.h
 *	  The index that a job table lacks.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_INDEX_H
#define TOKENLOCK_JOB_INDEX_H

#include "job_table.h"

/*
 * The CREATE INDEX statement (rarely more, with semicolons between them) after which the statements
 * of claims find their rows without reading others, or NULL when there are
 * suitable indexes.  The caller must hold a lock on the table.
 */
extern char *tl_job_missing_index(TlJobTableInfo *info);

#endif							/* TOKENLOCK_JOB_INDEX_H */
