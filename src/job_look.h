/*-------------------------------------------------------------------------
 *
 * job_look.h
 *	  The look behind: finding what no claimer would come across.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_LOOK_H
#define TOKENLOCK_JOB_LOOK_H

#include "job_table.h"

#include "access/htup.h"

/*
 * Look at a bit more of the table, if it is time to.  short_answer: the
 * caller has found fewer ready rows than it wants, and hopes for more.
 * Answers whether there are new islands.
 */
extern bool tl_look_behind(TlJobTableInfo *info, bool short_answer);

/*
 * Has the row been changed since the snapshot that it is visible to, or is it
 * about to be, or locked against it?  Its page must be locked.
 */
extern bool tl_look_is_passing(HeapTupleHeader tuple);

/*
 * Is nobody about to change the row in that place, so that a claim would not
 * pass it by?
 */
extern bool tl_look_is_free(Oid relation, ItemPointer tid);

#endif							/* TOKENLOCK_JOB_LOOK_H */
