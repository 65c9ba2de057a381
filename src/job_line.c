/*-------------------------------------------------------------------------
 *
 * job_line.c
 *	  The sessions that wait for jobs of one table.
 *
 * If all of them looked whenever a job comes, most would look in vain.  So a
 * call wakes one; one that has found all it asked for, and so may have left
 * some, wakes the next.  Whoever is woken and does not look passes it on.
 *
 * Locks: those of the callers.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "compat.h"
#include "job_line.h"
#include "shmem.h"
#include "storage/latch.h"
#include "storage/proc.h"

StaticAssertDecl(sizeof(TlJobWaiter) <= TL_SLOT_SIZE - TL_SLOT_WAITER,
				 "a slot is too small");

static TlJobWaiter *
waiter_at(int procno)
{
	return (TlJobWaiter *) ((char *) tl_shmem_slot(procno) + TL_SLOT_WAITER);
}

static void
set_latch(int procno)
{
	SetLatch(&ProcGlobal->allProcs[procno].procLatch);
}

void
tl_job_line_init(TlJobLine *line)
{
	memset(line, 0, sizeof(TlJobLine));
	line->first = line->last = -1;
	line->next_look = TL_NEVER;
}

TlJobWaiter *
tl_job_line_me(void)
{
	return waiter_at(tl_my_procno());
}

bool
tl_job_line_is_first(const TlJobLine *line)
{
	return line->first == tl_my_procno();
}

void
tl_job_line_add(TlJobLine *line)
{
	TlJobWaiter *me = tl_job_line_me();

	me->previous = line->last;
	me->next = -1;
	me->looking = true;
	me->woken = false;
	me->seen = line->calls;
	if (line->last >= 0)
		waiter_at(line->last)->next = tl_my_procno();
	else
	{
		line->first = tl_my_procno();
		line->next_look = TL_NEVER;
	}
	line->last = tl_my_procno();
	line->waiting++;
}

void
tl_job_line_remove(TlJobLine *line)
{
	TlJobWaiter *me = tl_job_line_me();

	if (me->next >= 0)
		waiter_at(me->next)->previous = me->previous;
	else
		line->last = me->previous;
	if (me->previous >= 0)
		waiter_at(me->previous)->next = me->next;
	else
	{
		/* the next one looks by the clock from now on */
		line->first = me->next;
		tl_job_line_poke(line);
	}
	line->waiting--;
}

void
tl_job_line_call(TlJobLine *line)
{
	if (line->waiting == 0)
		return;
	line->calls++;
	line->last_call = tl_now();
	tl_job_line_hand_on(line);
}

/*
 * Best one that sleeps and is not the first, as another would have to take its
 * place; last one that is looking, and would have to look once more.
 */
void
tl_job_line_hand_on(TlJobLine *line)
{
	int			best = -1;
	int			best_rank = 0;

	for (int n = line->first; n >= 0 && best_rank < 3; n = waiter_at(n)->next)
	{
		TlJobWaiter *waiter = waiter_at(n);
		int			rank = waiter->looking ? 1 : n == line->first ? 2 : 3;

		if (waiter->woken || waiter->seen >= line->calls || rank <= best_rank)
			continue;
		best = n;
		best_rank = rank;
	}
	if (best >= 0)
	{
		waiter_at(best)->woken = true;
		set_latch(best);
	}
}

void
tl_job_line_poke(TlJobLine *line)
{
	if (line->first >= 0)
		set_latch(line->first);
}

void
tl_job_line_look_at(TlJobLine *line, TlTime when)
{
	if (when >= line->next_look)
		return;
	line->next_look = when;
	if (!tl_job_line_is_first(line))
		tl_job_line_poke(line);
}
