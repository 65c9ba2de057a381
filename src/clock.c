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
#include "common/int.h"
#include "datatype/timestamp.h"

/* Spans beyond this are endless: some 70,000 years, safe to add to any now. */
#define TL_LONGEST_SPAN		(PG_INT64_MAX / 4)

TlTime
tl_now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_BOOTTIME, &ts) != 0)
		elog(ERROR, "could not read the boot-time clock: %m");
	return (TlTime) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000;
}

TlTime
tl_time_add(TlTime now, TlTime span)
{
	if (now == TL_NEVER || span >= TL_LONGEST_SPAN)
		return TL_NEVER;
	return now + span;
}

TimestampTz
tl_time_to_timestamptz(TlTime when)
{
	TimestampTz result = GetCurrentTimestamp();

	if (pg_add_s64_overflow(result, when - tl_now(), &result) ||
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
