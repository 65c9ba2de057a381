/*-------------------------------------------------------------------------
 *
 * statefile.h
 *	  Leases, places and workers over a clean stop of the server.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_STATEFILE_H
#define TOKENLOCK_STATEFILE_H

/* Called from _PG_init. */
extern void tl_statefile_init(void);

#endif							/* TOKENLOCK_STATEFILE_H */
