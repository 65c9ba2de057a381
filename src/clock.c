/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The clock of leases, and the ways between it and SQL's types.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "clock.h"
#include "compat.h"
#include "common/hashfn.h"
#include "common/int.h"
#include "datatype/timestamp.h"
#include "storage/fd.h"

/* Spans beyond this are endless: some 70,000 years, safe to add to any now. */
#define TL_LONGEST_SPAN		(PG_INT64_MAX / 4)

/* Two readings of the clocks differ by less, steps of a clock by more. */
#define TL_OFFSET_NOISE		1000

TlTime
tl_now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_BOOTTIME, &ts) != 0)
		elog(ERROR, "could not read the boot-time clock: %m");
	return (TlTime) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000;
}

/* Hash what is in a file; 0 when it cannot be read. */
static uint64
file_hash(const char *name)
{
	FILE	   *file = AllocateFile(name, "r");
	char		content[256];
	size_t		size;

	if (!file)
		return 0;
	size = fread(content, 1, sizeof(content), file);
	FreeFile(file);
	return size == 0 ? 0 :
		hash_bytes_extended((unsigned char *) content, (int) size, 0);
}

/*
 * The number that the kernel draws at each boot; and, as a container may have
 * an offset of its own to the machine's clock, that.
 */
uint64
tl_boot(void)
{
	static uint64 boot = 0;
	static bool known = false;

	if (!known)
	{
		boot = file_hash("/proc/sys/kernel/random/boot_id");
		if (boot != 0)
			boot = hash_combine64(boot,
								  file_hash("/proc/self/timens_offsets"));
		known = true;
	}
	return boot;
}

bool
tl_boot_is(uint64 boot)
{
	return boot != 0 && boot == tl_boot();
}

TlTime
tl_now_coarse(void)
{
	static TlTime base = 0;		/* by our clock */
	static TlTime base_coarse;	/* at the same time by the coarse one */
	struct timespec ts;
	TlTime		coarse;

	if (clock_gettime(CLOCK_MONOTONIC_COARSE, &ts) != 0)
		elog(ERROR, "could not read the coarse clock: %m");
	coarse = (TlTime) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000;
	if (base == 0 || coarse - base_coarse > USECS_PER_SEC)
	{
		base = tl_now();
		base_coarse = coarse;
	}
	return base + (coarse - base_coarse);
}

TlTime
tl_time_add(TlTime now, TlTime span)
{
	if (now == TL_NEVER || span >= TL_LONGEST_SPAN)
		return TL_NEVER;
	return now + span;
}

/*
 * How far the wall clock is ahead of ours.  Time passes between the readings
 * of the two clocks, so that the distance seems to differ a little each time.
 * What is too small for a step of the wall clock is taken for that, so that
 * one point in time is shown as the same each time a session looks at it.
 */
static TlTime
wall_clock_offset(void)
{
	static TlTime offset = 0;
	TlTime		current = 0;

	/* a process switch between the readings would spoil them */
	for (int i = 0; i < 3; i++)
	{
		TlTime		before = tl_now();
		TimestampTz wall = GetCurrentTimestamp();
		TlTime		after = tl_now();

		current = wall - before - (after - before) / 2;
		if (after - before < TL_OFFSET_NOISE / 10)
			break;
	}
	if (current - offset > TL_OFFSET_NOISE ||
		offset - current > TL_OFFSET_NOISE)
		offset = current;
	return offset;
}

TimestampTz
tl_time_to_timestamptz(TlTime when)
{
	TimestampTz result;

	if (pg_add_s64_overflow(when, wall_clock_offset(), &result) ||
		!IS_VALID_TIMESTAMP(result))
		return DT_NOEND;
	return result;
}

TlTime
tl_interval_to_time(const Interval *interval)
{
	int64		days;
	int64		result;

	if (tl_interval_is_infinite(interval))
		return interval->month > 0 ? TL_NEVER : PG_INT64_MIN;

	days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &result) ||
		pg_add_s64_overflow(result, interval->time, &result))
		return days > 0 ? TL_NEVER : PG_INT64_MIN;
	return result >= TL_LONGEST_SPAN ? TL_NEVER : result;
}

int
tl_time_to_ms(TlTime span)
{
	if (span >= (TlTime) INT_MAX * 1000)
		return INT_MAX;
	if (span <= 1000)
		return 1;
	return (int) ((span + 999) / 1000);
}
