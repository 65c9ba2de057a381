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

/*
 * Look at a bit more of the table, if it is time to.  short_answer: the
 * caller has found fewer ready rows than it wants, and hopes for more.
 * Answers whether there are new islands.
 */
extern bool tl_look_behind(TlJobTableInfo *info, bool short_answer);

#endif							/* TOKENLOCK_JOB_LOOK_H */
