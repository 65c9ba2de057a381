/*-------------------------------------------------------------------------
 *
 * line.h
 *	  The line of those who wait for a token.
 *
 * All of these need the token's lock (token.h).
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_LINE_H
#define TOKENLOCK_LINE_H

#include "token.h"

/* A place outside of shared memory. */
typedef struct TlPlace
{
	TlTime		since;
	TlTime		deadline;
	Oid			role;
	uint8		owner_len;
	char		owner[TL_NAME_MAX];
} TlPlace;

/*
 * Copy one; and put it at the end of the line, after a restart, if there is
 * room.  That locks the token itself.
 */
extern void tl_line_copy_place(const TlWaiter *waiter, TlPlace *place);
extern void tl_line_revive(const TlKey *key, const TlPlace *place);

/* Add to the line, or remove from it. */
extern TlWaiter *tl_line_add(TlToken *token, const TlRequest *request,
							 TlStanding standing, TlTime deadline);
extern void tl_line_remove(TlToken *token, TlWaiter *waiter);

/* What this session waits as, be it on its owner's place, or NULL. */
extern TlWaiter *tl_line_waiter_of(TlToken *token, int procno);

/* The shared holder that waits to have the token alone, or NULL. */
extern TlWaiter *tl_line_upgrader(TlToken *token);

/* The owner's place, or NULL. */
extern TlWaiter *tl_line_place_of(TlToken *token, const TlOwner *owner);

/*
 * Is it the turn of this owner?  It is nobody's but the upgrader's while there
 * is one; else among sessions the head's, and among places the oldest's; and
 * of head and place the older.  Who is not in line has a turn when nobody is.
 */
extern bool tl_line_is_turn(TlToken *token, const TlOwner *owner);

/* The earliest time at which a place lapses that stands before this owner. */
extern TlTime tl_line_next_lapse(TlToken *token, const TlOwner *owner);

/* How many will be served before this waiter, and 1. */
extern int64 tl_line_number(TlToken *token, const TlWaiter *waiter);

/*
 * Let a session sleep on its owner's place, which does not lapse meanwhile;
 * and end that, keeping the place until then.
 */
extern void tl_line_occupy(TlToken *token, TlWaiter *place,
						   const TlOwner *owner);
extern void tl_line_vacate(TlToken *token, TlWaiter *place, TlTime until);

/* Keep a place on which no session sleeps until then. */
extern void tl_line_keep(TlToken *token, TlWaiter *place, TlTime until);

/*
 * Mark the sessions of a named owner that just got the token, and return how
 * many they are: they need not wait on, and wait.c gets them out of the line.
 * At most max process numbers are returned.
 */
extern int	tl_line_kick(TlToken *token, const TlOwner *owner,
						 int *procnos, int max);

/* Remove all places on which no session sleeps; for token.c. */
extern void tl_line_remove_places(TlToken *token);

/* Remove places that have lapsed; for token.c. */
extern void tl_line_remove_lapsed(TlToken *token);

#endif							/* TOKENLOCK_LINE_H */
