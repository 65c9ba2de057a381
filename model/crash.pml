/*
 * crash.pml
 *
 * What outlives the server's memory: reservations (promise.c), the grace
 * (recover.c), records of long leases (record.c), the file of a clean stop
 * (statefile.c).  One token, two clients, each with an owner of its own.
 *
 * All times are what is left of them.  A client believes to hold from its
 * answer until its ttl is over, counted from before it asked.
 */
#define A	1					/* clients; 0: nobody */
#define B	2
#define C	3					/* asks for another token */

#ifndef ASKS_A
#define ASKS_A	2
#endif
#ifndef ASKS_B
#define ASKS_B	1
#endif
#ifndef ASKS_C
#define ASKS_C	0
#endif
#ifndef CRASHES
#define CRASHES	1
#endif
#ifndef RESERVE_AT_ONCE
#define RESERVE_AT_ONCE	0		/* B's is, as it comes last */
#endif
#ifndef REBOOTS
#define REBOOTS	0
#endif

/*
 * A asks, with A_AT_LAST, when the reservation is just good enough;
 * B asks once all that was to happen to the server has happened, unless it is
 * to hurry; C when the reservation is over.
 */
#ifndef A_AT_LAST
#define A_AT_LAST	0
#endif
#ifndef B_HURRIES
#define B_HURRIES	0
#endif
#if B_HURRIES
#define MAY_BEGIN(c)	(c != C || good == 0)
#else
#define MAY_BEGIN(c) \
	((c != C || good == 0) && (c != A || !A_AT_LAST || good == 1) && \
	 (c != B || crashes + stops + failovers == 0))
#endif
#ifndef STOPS
#define STOPS	0
#endif
#ifndef FAILOVERS
#define FAILOVERS	0
#endif

#define SETTING	3				/* tokenlock.grace */
#define AHEAD	1				/* a reservation is good for so long */

/* what they may ask for: a bit each */
#define T_SHORT	1				/* 1 */
#define T_FULL	2				/* SETTING */
#define T_LONG	4				/* LONG: it needs a record */
#define T_PUT	8				/* a put */
#define LONG	4
#ifndef TTLS_A
#define TTLS_A	(T_SHORT | T_FULL | T_PUT)
#endif
#ifndef FIRST_A
#define FIRST_A	TTLS_A			/* its first request */
#endif
#ifndef TTLS_B
#define TTLS_B	T_SHORT
#endif
#define MAY_ASK(t) \
	((c == A && asks[A] < ASKS_A - 1 && (TTLS_A) & t) || \
	 (c == A && asks[A] == ASKS_A - 1 && (FIRST_A) & t) || \
	 (c == B && (TTLS_B) & t))

/* TlDatabase.state */
#define UNKNOWN	0
#define GRACE	1
#define OPEN	2

/* answers of a step */
#define NO		0
#define YES		1
#define PROMISE	2				/* reserve and ask again */
#define WRITE	3				/* write the record, then answer */
#define CLEAR	4				/* remove a remnant and ask again */
#define BUSY	5				/* it is being written: ask again later */
#define LOOK	6				/* nobody has looked at the database yet */
#define RENEW	7				/* the grace is over: reserve anew, then ask */

typedef Lease {					/* TlHolder of the token */
	byte who;					/* 0: nobody */
	byte left;
	byte ttl;
	bool record;				/* it has a slot */
	bool recorded;				/* which says that it has the token */
	bool writing;
	bool ended
};

typedef Reservation {			/* page 1 of tokenlock_lease */
	bool known;
	byte longest;
	byte until;
	bool this_boot;				/* "until" is of this boot's clock */
	bool this_history
};

typedef Record {				/* a slot */
	bool used;
	byte left;
	byte ttl;
	bool this_boot
};

/* shared memory */
Lease h;
byte state;
byte grace;						/* grace_until */
bool restored;
byte promised;
byte good;						/* promised_until: 0: over, 1: just so */

/* who writes, and what */
byte reserving;					/* the client that has the sequence's lock */
byte next_good[4];
byte next_longest[4];
bool anew[4];
byte new_end[4];
byte new_ttl[4];

/* pages as they are in memory, and as they are on disk */
Reservation page;
Reservation disk;
Record slot[3];
Record disk_slot[3];
byte dirty[3];					/* order in which page (0), slots were written */
Reservation standby;			/* as replicated last */
Record standby_slot[3];

/* the file of a clean stop */
bool file;
bool file_of_last_stop;			/* no start since */
Lease file_lease;
byte file_left;					/* its age stands still (another boot) */
byte file_grace;
byte file_grace_left;
bool file_known;				/* the database is in it */

/* clients */
bool up;
bool in_call[4];
bool lost[4];					/* its call died with the server */
byte asks[4];
byte result[4];
byte belief[4];
byte asked[4];					/* what is left of the ttl since it asked */
byte crashes, stops, failovers;

c_decl {
extern void (*Uerror) (char *);

static const char *mutant_name = "";
static void __attribute__((constructor))
read_mutant(void)
{
	if (getenv("MUTANT"))
		mutant_name = getenv("MUTANT");
}
#define MUTANT(name)	(*mutant_name && !strcmp(mutant_name, #name))
}

c_code {
#define Max(a, b)	((a) > (b) ? (a) : (b))
#define Min(a, b)	((a) < (b) ? (a) : (b))

/*
 * Pages
 */
static void
written(int i)
{
	int			n = 0;
	int			j;

	for (j = 0; j < 3; j++)
		n = Max(n, now.dirty[j]);
	now.dirty[i] = n + 1;
}

/* XLogFlush: what was written before is on disk, too. */
static void
flush(int i)
{
	int			upto = now.dirty[i];
	int			j;

	for (j = 0; j < 3; j++)
		if (now.dirty[j] != 0 && now.dirty[j] <= upto)
		{
			if (j == 0)
				now.disk = now.page;
			else
				now.disk_slot[j] = now.slot[j];
			now.dirty[j] = 0;
		}
		else if (now.dirty[j] != 0)
			now.dirty[j] -= upto;
}

static void
replicate(void)
{
	now.standby = now.disk;
	now.standby_slot[A] = now.disk_slot[A];
	now.standby_slot[B] = now.disk_slot[B];
}

/* A synchronous standby is waited for. */
static void
sync_rep(void)
{
	if (!MUTANT(R7))
		replicate();
}

/*
 * grant.c
 */
static int
is_live(void)
{
	return now.h.who != 0 && !now.h.ended && now.h.left > 0;
}

static void
settle(void)
{
	if (now.h.who == 0 || now.h.writing)
		return;
	if (!now.h.ended && now.h.left == 0)
		now.h.ended = 1;
	if (now.h.ended && !now.h.record)
		memset(&now.h, 0, sizeof(now.h));
}

static int
covers(int ttl)
{
	return ttl <= now.promised && now.good > 0;
}

static int
is_long(int ttl)
{
	return ttl > SETTING;
}

/* begin() of record.c */
static void
begin_write(int c, int ttl)
{
	now.h.writing = 1;
	now.new_end[c] = now.new_ttl[c] = ttl;
}

static void
set_end(int c, int ttl)
{
	now.h.left = now.h.ttl = ttl;
}

/* One attempt of a get, or (renew) only of the holder itself. */
static int
attempt(int c, int ttl, int renew)
{
	if (now.state == UNKNOWN)
		return LOOK;
	if (now.state == GRACE && now.grace == 0)
		return RENEW;
	if (c == C)
		return covers(ttl) ? NO : PROMISE;
	settle();
	if (is_live() && now.h.who == c)
	{
		if (now.h.record || is_long(ttl))
		{
			if (now.h.writing)
				return BUSY;
			if (!is_long(ttl) && !covers(ttl))
				return PROMISE;
			now.h.record = 1;
			begin_write(c, ttl);
			return WRITE;
		}
		if (!covers(ttl) && !MUTANT(R2))
			return PROMISE;
		set_end(c, ttl);
		return YES;
	}
	if (renew)
		return NO;
	if (now.h.who != 0 && now.h.ended && now.h.writing)
		return MUTANT(R8) ? NO : BUSY;
	if (now.h.who != 0 && !now.h.ended)
		return NO;
	if (now.state != OPEN && now.grace > 0)
		return NO;
	if (now.h.who != 0)
	{
		if (!MUTANT(R8))
			return CLEAR;
		/* the record of the former goes some time */
	}
	if (!is_long(ttl) && !covers(ttl))
		return PROMISE;
	memset(&now.h, 0, sizeof(now.h));
	now.h.who = c;
	set_end(c, ttl);
	if (!is_long(ttl))
		return YES;
	now.h.record = 1;
	begin_write(c, ttl);
	return WRITE;
}

/*
 * record.c
 */
static void
write_slot(int c, int clear)
{
	if (clear)
		memset(&now.slot[c], 0, sizeof(now.slot[c]));
	else
	{
		now.slot[c].used = 1;
		now.slot[c].left = now.new_end[c];
		now.slot[c].ttl = now.new_ttl[c];
		now.slot[c].this_boot = 1;
	}
	written(c);
}

/* The slot says so on disk: 1, or is empty there: 0. */
static int
finish(int c, int is_record, int restart)
{
	int			live = 0;

	if (now.h.who != 0)
	{
		now.h.writing = 0;
		if (!is_record)
			now.h.record = 0;
		live = is_live();
		if (live)
		{
			now.h.recorded = is_record;
			if (restart)
			{
				now.h.left = now.new_end[c];
				now.h.ttl = now.new_ttl[c];
			}
		}
		settle();
	}
	now.new_end[c] = now.new_ttl[c] = 0;
	return live;
}

/* Mark a remnant as being removed: whose slot it is, or 0. */
static int
begin_clear(void)
{
	settle();
	if (now.h.who == 0 || !now.h.ended || !now.h.record || now.h.writing)
		return 0;
	now.h.writing = 1;
	return now.h.who;
}

/*
 * promise.c
 */

/* Returns 0 when there is nothing to do. */
static int
begin_reserve(int c, int ttl, int again)
{
	if (!again && covers(ttl))
		return 0;
	now.next_longest[c] = ttl;
	now.anew[c] = again || now.good == 0;
	now.next_good[c] = now.good;
	if (now.anew[c])
	{
		now.next_good[c] = AHEAD + 1;
		if (now.promised > ttl)
			now.promised = ttl;
	}
	return 1;
}

static void
look_at_leases(int c)
{
	if (!now.anew[c])
		return;
	if (now.h.who != 0 && !now.h.ended && now.h.left > 0 &&
		!MUTANT(NO_LOOK) &&
		(!now.h.recorded || (now.h.writing && !MUTANT(WRITING))))
		now.next_longest[c] = Max(now.next_longest[c], now.h.ttl);
	now.next_longest[c] = Min(now.next_longest[c], SETTING);
}

static void
write_reservation(int c)
{
	if (now.state == GRACE && now.grace > 0 && !MUTANT(GRACE_KEEP))
	{
		now.next_longest[c] = Max(now.next_longest[c], now.grace);
		if (now.page.known)
			now.next_longest[c] = Max(now.next_longest[c], now.page.longest);
	}
	now.page.known = 1;
	now.page.longest = now.next_longest[c];
	now.page.until = now.next_longest[c] +
		(now.next_good[c] > 0 ? now.next_good[c] - 1 : 0);
	now.page.this_boot = now.page.this_history = 1;
	written(0);
}

static void
flush_reservation(void)
{
	int			first = !now.disk.known;

	flush(0);
	/* the first one waits for a standby, where there is one */
	if (first)
		replicate();
}

/*
 * recover.c
 */
static void
look(void)
{
	int			c;

	if (now.state != UNKNOWN)
		return;
	/* the grace was set at the start; tl_record_load */
	for (c = A; c <= B; c++)
	{
		int			left = now.slot[c].left;

		if (!now.slot[c].used)
			continue;
		if (!now.slot[c].this_boot)
			left = Max(Min(left, now.slot[c].ttl), now.grace);
		if (left == 0)
		{
			memset(&now.slot[c], 0, sizeof(now.slot[c]));
			written(c);
			flush(c);
			continue;
		}
		if (now.h.who != 0)
			Uerror("two leases after a start");
		now.h.who = c;
		now.h.left = left;
		now.h.ttl = now.slot[c].ttl;
		now.h.record = now.h.recorded = 1;
	}
	now.state = now.grace > 0 ? GRACE : OPEN;
}

/*
 * Clients
 */
static void
send(int c, int ttl)
{
	now.in_call[c] = 1;
	if (c == C)
		return;
	now.asked[c] = ttl;
	/* of a shorter ttl, whose answer may be late */
	now.belief[c] = MUTANT(R10) ? now.belief[c] : Min(now.belief[c], ttl);
}

static void
answered(int c, int yes)
{
	int			other = A + B - c;

	if (now.lost[c])
		yes = 0;
	if (yes && c != C)
	{
		now.belief[c] = MUTANT(R9) ? now.h.ttl : now.asked[c];
		if (now.belief[c] > 0 && now.belief[other] > 0)
			Uerror("two believers");
	}
	else if (!now.lost[c])
		now.belief[c] = 0;
	now.asked[c] = now.result[c] = 0;
	now.in_call[c] = now.lost[c] = 0;
}

/* token_put: the first half; answers whether there is a record to remove */
static int
put_entry(int c)
{
	settle();
	if (now.state == UNKNOWN || !is_live() || now.h.who != c)
		return 0;
	now.h.ended = 1;
	settle();
	return now.h.who != 0;
}

/*
 * The server goes down and comes up.
 */
static void
lose_memory(void)
{
	int			c;

	memset(&now.h, 0, sizeof(now.h));
	now.state = now.grace = now.promised = now.good = 0;
	now.restored = now.reserving = 0;
	for (c = A; c <= C; c++)
	{
		now.next_good[c] = now.next_longest[c] = now.anew[c] = 0;
		now.new_end[c] = now.new_ttl[c] = 0;
		if (now.in_call[c])
			now.lost[c] = 1;
		now.result[c] = 0;
	}
	now.up = 0;
}

/* Keeps what was written, up to some point. */
static void
crash(int keep)
{
	int			j;

	for (j = 0; j < 3; j++)
	{
		if (now.dirty[j] != 0 && now.dirty[j] <= keep)
		{
			if (j == 0)
				now.disk = now.page;
			else
				now.disk_slot[j] = now.slot[j];
		}
		now.dirty[j] = 0;
	}
	now.page = now.disk;
	now.slot[A] = now.disk_slot[A];
	now.slot[B] = now.disk_slot[B];
	lose_memory();
	now.file_of_last_stop = 0;
}

static void
clean_stop(void)
{
	now.file = now.file_of_last_stop = 1;
	memset(&now.file_lease, 0, sizeof(now.file_lease));
	if (now.h.who != 0 && !now.h.ended && !now.h.record && now.h.left > 0)
		now.file_lease = now.h;
	now.file_left = now.file_lease.left;
	now.file_known = now.restored || now.state != UNKNOWN || MUTANT(UNKNOWN);
	now.file_grace = (now.state == GRACE ||
					  (now.state == UNKNOWN && now.restored)) &&
		!MUTANT(R4) ? now.grace : 0;
	now.file_grace_left = now.file_grace;
	/* the shutdown checkpoint, for which all sessions have ended */
	crash(3);
	now.file_of_last_stop = 1;
}

static void
forget_file(void)
{
	now.file = now.file_known = now.file_left = now.file_grace =
		now.file_grace_left = now.file_of_last_stop = 0;
	memset(&now.file_lease, 0, sizeof(now.file_lease));
}

static void
start(int reboot, int promoted)
{
	int			c;

	if (promoted)
	{
		now.page = now.disk = now.standby;
		for (c = A; c <= B; c++)
		{
			now.slot[c] = now.disk_slot[c] = now.standby_slot[c];
			now.slot[c].this_boot = now.disk_slot[c].this_boot = 0;
		}
		now.page.this_history = now.disk.this_history = MUTANT(R6);
		now.page.this_boot = now.disk.this_boot = MUTANT(R6);
		forget_file();
	}
	if (reboot)
	{
		now.page.this_boot = now.disk.this_boot = 0;
		for (c = A; c <= B; c++)
			now.slot[c].this_boot = now.disk_slot[c].this_boot = 0;
	}
	if (reboot && MUTANT(R3))
	{
		/* another clock, by which that time is over long since */
		now.page.this_boot = now.disk.this_boot = 1;
		now.page.until = now.disk.until = 0;
	}
	now.state = UNKNOWN;
	now.up = 1;

	/* find_grace, of which nothing changes until somebody looks */
	if (!now.page.known)
		now.grace = 0;
	else if (!now.page.this_history)
		now.grace = SETTING;
	else if (now.page.this_boot)
		now.grace = Min(now.page.longest, now.page.until);
	else
		now.grace = now.page.longest;

	if (now.file && (now.file_of_last_stop || MUTANT(R5)) && now.file_known)
	{
		now.restored = 1;
		now.grace = reboot ? now.file_grace : now.file_grace_left;
		if (now.file_lease.who != 0)
		{
			now.h = now.file_lease;
			if (reboot)
				now.h.left = now.file_left;
			settle();
		}
	}
	if (!MUTANT(R5))
		forget_file();
	/* it is of no stop any more that is the last */
	now.file_of_last_stop = 0;
}

/*
 * The clock
 */
static int
passes(uchar *time, int change)
{
	int			can = *time > 0;

	if (can && change)
		--*time;
	return can;
}

static int
time_passes(int change)
{
	int			can = 0;
	int			c;

	can |= passes(&now.h.left, change);
	can |= passes(&now.grace, change);
	can |= passes(&now.good, change);
	/* these matter only together with another one */
	(void) passes(&now.page.until, change);
	(void) passes(&now.disk.until, change);
	(void) passes(&now.standby.until, change);
	can |= passes(&now.file_lease.left, change);
	can |= passes(&now.file_grace_left, change);
	for (c = A; c <= C; c++)
		can |= passes(&now.next_good[c], change);
	for (c = A; c <= B; c++)
	{
		can |= passes(&now.belief[c], change);
		can |= passes(&now.asked[c], change);
		can |= passes(&now.new_end[c], change);
		can |= passes(&now.slot[c].left, change);
		can |= passes(&now.disk_slot[c].left, change);
		can |= passes(&now.standby_slot[c].left, change);
	}
	return can;
}
}

/*
 * A call ends with the server that it was made to.
 */
#define WHEN(can, s) \
	if \
	:: lost[c] -> goto end_of_call \
	:: atomic { !lost[c] && (can) -> s } \
	fi
#define STEP(s)	WHEN(true, s)

proctype client(byte c)
{
	byte ttl;
	bool renew;
	byte whose;
	byte r;

end_idle:	/* it may be too late to ask */
	do
	:: asks[c] == 0 -> break
	:: atomic {
			up && asks[c] > 0 && MAY_BEGIN(c) ->
			asks[c]--;
			renew = false;
			if
			:: c == C || MAY_ASK(T_SHORT) -> ttl = 1
			:: MAY_ASK(T_FULL) -> ttl = SETTING
			:: MAY_ASK(T_LONG) -> ttl = LONG
			:: MAY_ASK(T_PUT) && belief[c] > 0 -> ttl = 0
			:: else -> goto next	/* nothing to put any more */
			fi;
			c_code { send(Pclient->c, Pclient->ttl); }
			if
			:: ttl == 0 -> goto put
			:: else
			fi
		}
again:
		STEP(
			c_code { now.result[Pclient->c] = attempt(Pclient->c, Pclient->ttl, Pclient->renew); };
			r = result[c];
			result[c] = 0;
			if
			:: r == YES || r == NO -> goto answer
			:: r == PROMISE || r == RENEW -> goto reserve
			:: r == WRITE -> goto write
			:: r == CLEAR -> goto clear
			:: r == BUSY -> goto waiting
			:: r == LOOK -> goto looks
			fi);

waiting:	/* tl_record_wait */
		WHEN(!h.writing, goto again);

looks:
		WHEN(reserving == 0, c_code { look(); }; goto again);

reserve:
		WHEN(reserving == 0,
			c_code {
				now.result[Pclient->c] = begin_reserve(Pclient->c,
					Pclient->r == RENEW ? 0 : Pclient->ttl,
					Pclient->r == RENEW);
			};
			if
			:: result[c] == 0 -> goto again
			:: else -> result[c] = 0; reserving = c
			fi;
			if
			:: (c == B && !B_HURRIES) || RESERVE_AT_ONCE -> goto at_once
			:: else -> goto in_steps
			fi);

at_once:	/* what can happen in between is checked by other runs */
		STEP(
			c_code {
				look_at_leases(Pclient->c);
				write_reservation(Pclient->c);
				flush_reservation();
				now.promised = now.next_longest[Pclient->c];
				now.good = now.next_good[Pclient->c];
			};
			goto reserved);

in_steps:
		STEP(c_code { look_at_leases(Pclient->c); });
		STEP(
			c_code { write_reservation(Pclient->c); };
			if
			:: c_expr { MUTANT(R1) } -> goto publish
			:: else
			fi);
flush:
		STEP(
			c_code { flush_reservation(); };
			if
			:: c_expr { MUTANT(R1) } -> goto reserved
			:: else
			fi);
publish:
		STEP(c_code { now.promised = now.next_longest[Pclient->c]; });
		STEP(
			good = next_good[c];
			if
			:: c_expr { MUTANT(R1) } -> goto flush
			:: else
			fi);
reserved:
		STEP(
			reserving = 0;
			c_code {
				now.next_good[Pclient->c] = now.next_longest[Pclient->c] = 0;
				now.anew[Pclient->c] = 0;
				if (Pclient->r == RENEW && now.state == GRACE && now.grace == 0)
					now.state = OPEN;
			};
			goto again);
write:		/* tl_record_granted, tl_record_restart */
		STEP(
			c_code { write_slot(Pclient->c, !is_long(Pclient->ttl)); };
			if
			:: c_expr { MUTANT(FLUSH) } -> goto unflushed
			:: else
			fi);
		STEP(
			c_code { flush(Pclient->c); sync_rep(); });
unflushed:
		STEP(
			c_code { now.result[Pclient->c] = finish(Pclient->c, is_long(Pclient->ttl), 1); };
			r = (result[c] -> YES : NO);
			goto answer);

clear:		/* tl_record_clear */
		STEP(
			c_code { Pclient->whose = begin_clear(); };
			if
			:: whose == 0 && h.who != 0 && h.writing -> goto waiting
			:: whose == 0 && !(h.who != 0 && h.writing) -> goto cleared
			:: whose != 0
			fi);
		STEP(c_code { write_slot(Pclient->whose, 1); });
		STEP(
			c_code { flush(Pclient->whose); sync_rep(); });
		STEP(c_code { finish(Pclient->whose, 0, 0); });
cleared:
		STEP(
			if
			:: ttl == 0 -> r = NO; goto answer
			:: else -> goto again
			fi);

put:
		STEP(
			c_code { now.result[Pclient->c] = put_entry(Pclient->c); };
			if
			:: result[c] == 0 -> r = NO; goto answer
			:: else -> result[c] = 0; goto clear
			fi);

answer:
		atomic { c_code { answered(Pclient->c, Pclient->r == YES); }; goto next };
end_of_call:
		atomic { c_code { answered(Pclient->c, 0); }; goto next };
next:
		atomic { r = 0; ttl = 0; whose = 0 }
	od
}

proctype world()
{
end:
	do
	:: atomic { c_expr { (time_passes(0)) } -> c_code { time_passes(1); } }
	:: atomic {
			up && crashes > 0 ->
			crashes--;
			if
			:: c_code { crash(0); }
			:: dirty[0] + dirty[A] + dirty[B] > 0 -> c_code { crash(1); }
			:: dirty[0] + dirty[A] + dirty[B] > 1 -> c_code { crash(3); }
			fi
		}
	:: atomic { up && stops > 0 -> stops--; c_code { clean_stop(); } }
	:: atomic {
			!up ->
			if
			:: c_code { start(0, 0); }
			:: REBOOTS > 0 -> c_code { start(1, 0); }
			:: failovers > 0 && standby.known -> failovers--; c_code { start(1, 1); }
			fi
		}
	:: FAILOVERS > 0 && failovers > 0 -> c_code { replicate(); }
	od
}

init
{
	atomic {
		state = OPEN;
#ifdef LEASED
		/* A has a long lease */
		c_code {
			now.h.who = A;
			now.h.left = now.h.ttl = LONG;
			now.h.record = now.h.recorded = 1;
			now.belief[A] = now.new_end[A] = now.new_ttl[A] = LONG;
			write_slot(A, 0);
			flush(A);
			now.new_end[A] = now.new_ttl[A] = 0;
		};
#endif
#ifdef RESERVED
		/* as after the first lease */
		promised = SETTING;
		good = AHEAD + 1;
		page.known = true;
		page.longest = SETTING;
		page.until = AHEAD + SETTING;
		page.this_boot = true;
		page.this_history = true;
		c_code { now.disk = now.page; replicate(); };
#endif
		up = true;
		asks[A] = ASKS_A;
		asks[B] = ASKS_B;
		crashes = CRASHES;
		stops = STOPS;
		failovers = FAILOVERS;
		run client(A);
		run client(B);
		asks[C] = ASKS_C;
		run client(C);
		run world()
	}
}
