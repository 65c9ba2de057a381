/*-------------------------------------------------------------------------
 *
 * job_wake.h
 *	  The trigger that wakes those who wait for jobs.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_WAKE_H
#define TOKENLOCK_JOB_WAKE_H

#include "compat.h"

/* Has this table the trigger, so that it fires? */
extern bool tl_wake_has_trigger(Relation rel);

/*
 * Put the trigger on a table and its partitions, or take it off; nothing is
 * done where that is so already.  The caller has checked that it may.
 */
extern void tl_wake_set_trigger(Oid relation, bool wanted);

/*
 * After a utility statement: a new partition of a table that has the trigger
 * gets it, too, if the current role may do so.
 */
extern void tl_wake_after_utility(Node *statement);

#endif							/* TOKENLOCK_JOB_WAKE_H */
