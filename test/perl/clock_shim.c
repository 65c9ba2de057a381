/*
 * A clock that tests can step: preloaded into a server, it adds to the wall
 * clock and to the boot-time clock what the file says that TL_TEST_CLOCK names,
 * and lets the boot have another identity.
 *
 * The file holds two numbers of 8 bytes, microseconds for the wall clock and for
 * the boot-time clock, and behind them, to its end, what the kernel's boot_id
 * is to be.  It is mapped, so a change takes effect at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *steps;
static const char *file;

static void __attribute__((constructor))
start(void)
{
	int			fd;

	file = getenv("TL_TEST_CLOCK");
	fd = file ? open(file, O_RDONLY) : -1;
	if (fd < 0)
		return;
	steps = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (steps == MAP_FAILED)
		abort();
	close(fd);
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	static int	(*real) (clockid_t, struct timespec *);
	int64_t		step = 0;
	int64_t		ns;
	int			result;

	if (!real)
		real = (int (*) (clockid_t, struct timespec *))
			dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, ts);
	if (steps && clock == CLOCK_REALTIME)
		step = steps[0];
	else if (steps && clock == CLOCK_BOOTTIME)
		step = steps[1];
	ns = ts->tv_nsec + step % 1000000 * 1000;
	ts->tv_sec += step / 1000000;
	if (ns < 0)
	{
		ns += 1000000000;
		ts->tv_sec--;
	}
	else if (ns >= 1000000000)
	{
		ns -= 1000000000;
		ts->tv_sec++;
	}
	ts->tv_nsec = ns;
	return result;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;
	int			result = clock_gettime(CLOCK_REALTIME, &ts);

	(void) zone;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return result;
}

time_t
time(time_t *result)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (result)
		*result = ts.tv_sec;
	return ts.tv_sec;
}

FILE *
fopen(const char *name, const char *mode)
{
	static FILE *(*real) (const char *, const char *);
	FILE	   *stream;

	if (!real)
		real = (FILE *(*) (const char *, const char *))
			dlsym(RTLD_NEXT, "fopen");
	if (!steps || strcmp(name, "/proc/sys/kernel/random/boot_id") != 0)
		return real(name, mode);
	stream = real(file, mode);
	if (stream)
		fseek(stream, 16, SEEK_SET);
	return stream;
}

FILE *
fopen64(const char *name, const char *mode)
{
	return fopen(name, mode);
}
