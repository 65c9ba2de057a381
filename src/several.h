/*-------------------------------------------------------------------------
 *
 * several.h
 *	  Several tokens at once: all or none.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_SEVERAL_H
#define TOKENLOCK_SEVERAL_H

#include "token.h"

/*
 * Get all of these tokens, or none.  The template says everything but the
 * key.  The keys are put in order, and those given twice are dropped.
 */
extern bool tl_several_get(TlKey *keys, int n, const TlRequest *template);

/*
 * Give back what a call has taken so far that was ended by an error: at the
 * abort of that subtransaction, or (InvalidSubTransactionId) of the whole
 * transaction, or at exit.
 */
extern void tl_several_abort(SubTransactionId subid);

#endif							/* TOKENLOCK_SEVERAL_H */
