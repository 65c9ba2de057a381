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

/* Give back what a session had so far that dies in the middle. */
extern void tl_several_abandon(void);

#endif							/* TOKENLOCK_SEVERAL_H */
