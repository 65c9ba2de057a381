/*-------------------------------------------------------------------------
 *
 * procedure.h
 *	  Procedures that end their transaction in order to wait.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_PROCEDURE_H
#define TOKENLOCK_PROCEDURE_H

#include "fmgr.h"

/*
 * Raise an error unless the procedure may end its transaction: where it is
 * called that must be possible, and there must be no work to commit.  "instead"
 * is what to call otherwise.
 */
extern void tl_procedure_check(FunctionCallInfo fcinfo, const char *name,
							   const char *instead);

#endif							/* TOKENLOCK_PROCEDURE_H */
