/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock of leases, and the ways between it and SQL's types.
 *
 * Leases run on CLOCK_BOOTTIME: a step of the wall clock moves nothing, and
 * unlike CLOCK_MONOTONIC it goes on while the machine is suspended, so that
 * a client's idea of its lease and the server's stay together.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_CLOCK_H
#define TOKENLOCK_CLOCK_H

#include "tokenlock.h"

#include "utils/timestamp.h"

/* The present time. */
extern TlTime tl_now(void);

/*
 * The same to within a few milliseconds, for next to nothing.  It is further
 * behind for up to a second after the machine was suspended, or while the
 * kernel does not keep its clocks: only for what may be noticed late.
 */
extern TlTime tl_now_coarse(void);

/*
 * Tells this boot of the machine from others: points of our clock can be
 * compared only with those of the same boot.  0 when it cannot be told.
 */
extern uint64 tl_boot(void);
extern bool tl_boot_is(uint64 boot);

/* now + span, or TL_NEVER when either has no end or the sum has none. */
extern TlTime tl_time_add(TlTime now, TlTime span);

/* A point of our clock as wall-clock time, for people only. */
extern TimestampTz tl_time_to_timestamptz(TlTime when);

/*
 * The length of an interval.  Days have 24 hours and months 30 days.  Lengths
 * that the clock could not add to the present are TL_NEVER.
 */
extern TlTime tl_interval_to_time(const Interval *interval);

/* The rest of a span in whole milliseconds, rounded up: 1 to INT_MAX. */
extern int	tl_time_to_ms(TlTime span);

#endif							/* TOKENLOCK_CLOCK_H */
