/*-------------------------------------------------------------------------
 *
 * drop.h
 *	  Leaving nothing behind when a database or the extension is dropped.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_DROP_H
#define TOKENLOCK_DROP_H

#include "tokenlock.h"

/* Called from _PG_init. */
extern void tl_drop_init(void);

/*
 * A database is about to be dropped by this transaction.  To be called before
 * the drop, which cannot be undone any more when it is done.  What is kept of it
 * in shared memory goes when the transaction commits.
 */
extern void tl_drop_note_database(Oid database);

#endif							/* TOKENLOCK_DROP_H */
