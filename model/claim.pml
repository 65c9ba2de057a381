/*
 * claim.pml
 *
 * Job claims (job_claim.c, job_worker.c, job_xact.c): two workers, two rows,
 * READ COMMITTED.  A row's newest version, whether that is committed, and who
 * has it locked stand for what PostgreSQL does; each statement has a snapshot.
 */
#define A	1
#define B	2
#define ROWS	2

/* status of a row */
#define READY	0
#define CLAIMED	1
#define DONE	2
#define ABSENT	3				/* its insert has not been committed */

#ifndef LAPSES
#define LAPSES	1
#endif
#ifndef CALLS_A
#define CALLS_A	2
#endif
#ifndef CALLS_B
#define CALLS_B	1
#endif
#ifndef ABORTS
#define ABORTS	0
#endif

typedef Version {
	byte status;
	byte sid
};

Version committed[ROWS];
Version newest[ROWS];			/* of whoever has it locked */
byte locked[ROWS];				/* by this worker's transaction; 0: nobody */
bool changed[ROWS];				/* newest is not committed yet */

/* TlWorker */
byte open[3];
bool expired[3];
bool lapse_noted[3];

/* TlJobTable */
byte position;					/* rows before it were handed out */
byte island;					/* bits: rows behind it that may be ready */
byte fresh[3];					/* those that were added since a call looked */

/* calls */
byte snapshot_status[6];		/* [(worker - 1) * ROWS + row] */
byte snapshot_sid[6];
byte got[3];					/* bits: rows that this call has locked */
byte own[3];					/* of these, those that it had */
byte calls[3];
byte lapses, aborts;

/* properties */
byte told[3];					/* bits: rows that a worker was told are its own */
byte due[3];					/* rows that must not be missed by the call */

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
#define AT(c, row)	(((c) - 1) * ROWS + (row))
}

c_code {
/*
 * PostgreSQL
 */
static void
take_snapshot(int c)
{
	int			row;

	for (row = 0; row < ROWS; row++)
	{
		const struct Version *seen = now.changed[row] && now.locked[row] == c ?
			&now.newest[row] : &now.committed[row];

		now.snapshot_status[AT(c, row)] = seen->status;
		now.snapshot_sid[AT(c, row)] = seen->sid;
	}
}

/* Lock a row, SKIP LOCKED, and test its newest version as the snapshot's. */
static int
lock_row(int c, int row, int status, int sid)
{
	struct Version *newest;

	if (now.locked[row] != 0 && now.locked[row] != c)
		return 0;
	newest = now.changed[row] ? &now.newest[row] : &now.committed[row];
	if (!MUTANT(J1) &&
		(newest->status != status || (sid != 0 && newest->sid != sid)))
		return 0;
	now.locked[row] = c;
	return 1;
}

/* tl_job_find: returns bits. */
static int
find_rows(int c, int status, int sid, int which)
{
	int			found = 0;
	int			row;

	for (row = 0; row < ROWS; row++)
		if ((which & (1 << row)) && !(now.got[c] & (1 << row)) &&
			now.snapshot_status[AT(c, row)] == status &&
			(sid == 0 || now.snapshot_sid[AT(c, row)] == sid) &&
			lock_row(c, row, status, sid))
		{
			found |= 1 << row;
			break;				/* the batch is of one */
		}
	return found;
}

static void
update(int c, int row, int status, int sid)
{
	if (now.committed[row].status == DONE && status == CLAIMED)
		Uerror("a finished row is handed out");
	now.newest[row].status = status;
	now.newest[row].sid = sid;
	now.changed[row] = 1;
}

/*
 * job_worker.c
 */
static int
is_live(int c)
{
	return now.open[c] > 0 || !now.expired[c];
}

static void
restart(int c)
{
	now.expired[c] = now.lapse_noted[c] = 0;
}

/* tl_worker_call: before the call's first look. */
static void
worker_call(int c)
{
	if (!is_live(c) && !now.lapse_noted[c])
		now.lapse_noted[c] = 1;
	restart(c);
	if (!MUTANT(J3))
		now.open[c]++;
}

/* tl_worker_close: the lease begins in the step that lets go of it. */
static void
worker_close(int c, int committed)
{
	if (now.open[c] > 0)
		now.open[c]--;
	if (committed && !MUTANT(J3))
		restart(c);
	else if (now.expired[c])
		now.told[c] = 0;
}

/*
 * Calls
 */
static void
begin(int c)
{
	int			row;

	now.due[c] = 0;
	for (row = 0; row < ROWS; row++)
		if (now.committed[row].status == READY && now.locked[row] == 0 &&
			!(now.got[A + B - c] & (1 << row)))
			now.due[c] |= 1 << row;
}

/* What somebody else locks meanwhile may be missed. */
static void
not_due(int row)
{
	now.due[A] &= ~(1 << row);
	now.due[B] &= ~(1 << row);
}

/* "done": what it was told, and still has, is finished by the call. */
static void
finish_told(int c)
{
	int			row;

	take_snapshot(c);
	for (row = 0; row < ROWS; row++)
		if ((now.told[c] & (1 << row)) &&
			now.snapshot_status[AT(c, row)] == CLAIMED &&
			now.snapshot_sid[AT(c, row)] == c &&
			lock_row(c, row, CLAIMED, c))
			update(c, row, DONE, c);
}

static void
take_own(int c)
{
	int			found = find_rows(c, CLAIMED, c, 3);

	now.got[c] |= found;
	now.own[c] |= found;
}

static void
take_from(int c, int dead)
{
	int			found = find_rows(c, CLAIMED, dead, 3);

	/* it may have come back meanwhile */
	if (found && is_live(dead) && !MUTANT(J2))
		return;
	now.got[c] |= found;
}

static void
take_ready(int c, int which)
{
	int			found = find_rows(c, READY, 0, which);
	int			row;

	now.got[c] |= found;
	for (row = 0; row < ROWS; row++)
		if (found & (1 << row))
			not_due(row);
}

static void
advance(int c)
{
	int			row;

	for (row = 0; row < ROWS; row++)
		if ((now.got[c] & (1 << row)) && row + 1 > now.position)
			now.position = row + 1;
}

static void
set_claimed(int c)
{
	int			row;

	for (row = 0; row < ROWS; row++)
		if (now.got[c] & (1 << row))
		{
			update(c, row, CLAIMED, c);
			not_due(row);
		}
}

/* Others can see it: ProcArrayEndTransaction, and the locks go. */
static void
end_transaction(int c, int commits)
{
	int			row;
	int			other = A + B - c;

	for (row = 0; row < ROWS; row++)
	{
		if (now.locked[row] != c)
			continue;
		if (now.changed[row] && commits)
			now.committed[row] = now.newest[row];
		if (now.changed[row] && commits && now.newest[row].status == DONE)
			now.told[c] &= ~(1 << row);
		memset(&now.newest[row], 0, sizeof(now.newest[row]));
		now.changed[row] = 0;
		now.locked[row] = 0;
	}
	if (!commits)
		return;
	for (row = 0; row < ROWS; row++)
		if ((now.got[c] & (1 << row)) && (now.told[other] & (1 << row)))
			Uerror("a row with two live workers");
	now.told[c] |= now.got[c];
}

static void
add_island(int c)
{
	int			rows = now.got[c] & ~now.own[c];

	now.island |= rows;
	now.fresh[A] |= rows;
	now.fresh[B] |= rows;
}

/* The callbacks of job_xact.c, after that. */
static void
settle(int c, int commits)
{
	if (!commits && !MUTANT(J5) && !MUTANT(EARLY))
		add_island(c);
	worker_close(c, commits);
	now.got[c] = now.own[c] = 0;
	memset(&now.snapshot_status[AT(c, 0)], 0, ROWS);
	memset(&now.snapshot_sid[AT(c, 0)], 0, ROWS);
}
}

proctype worker(byte c)
{
	bool commits;
	byte other;
	byte looked;

	other = A + B - c;
	do
	:: calls[c] == 0 -> break
	:: atomic {
			calls[c] > 0 ->
			calls[c]--;
			c_code { begin(Pworker->c); worker_call(Pworker->c); };
			if
			:: told[c] != 0 -> c_code { finish_told(Pworker->c); }
			:: skip
			fi
		}
		/* own rows: a snapshot, then the locks */
		c_code { take_snapshot(Pworker->c); }
		c_code { take_own(Pworker->c); }
		/* those of a dead worker */
		if
		:: c_expr { (now.got[Pworker->c] == 0 && !is_live(Pworker->other)) } ->
			c_code { take_snapshot(Pworker->c); }
			c_code { take_from(Pworker->c, Pworker->other); }
		:: else
		fi;
		/* ready ones: islands */
		atomic {
			if
			:: got[c] == 0 && island != 0 ->
				looked = island;
				fresh[c] = 0;
				c_code { take_snapshot(Pworker->c); }
			:: else -> goto behind
			fi
		}
		atomic {
			c_code { take_ready(Pworker->c, Pworker->looked); };
			if
			:: got[c] != 0 -> island = island & ~got[c]
			:: else -> c_code { now.island &= ~(Pworker->looked & ~now.fresh[Pworker->c]); }
			fi
		}
behind:	/* then behind the position */
		atomic {
			if
			:: got[c] == 0 ->
				looked = (3 << position) & 3;
				c_code { take_snapshot(Pworker->c); }
			:: else -> goto found
			fi
		}
		c_code { take_ready(Pworker->c, Pworker->looked); advance(Pworker->c); }
#ifdef LATE
		/* and all, when that was not enough: the look behind */
		atomic {
			if
			:: c_expr { (now.got[Pworker->c] == 0 && !MUTANT(NO_LOOK)) } ->
				c_code { take_snapshot(Pworker->c); }
			:: else -> goto found
			fi
		}
		c_code { take_ready(Pworker->c, 3); }
#endif
found:
		atomic {
			assert(got[c] != 0 || due[c] == 0);
			due[c] = 0;
			looked = 0;
			c_code { set_claimed(Pworker->c); };
			commits = true;
			if
			:: aborts > 0 ->
				aborts--;
				commits = false;
				c_code { if (MUTANT(EARLY)) add_island(Pworker->c); }
			:: true
			fi
		}
		c_code { end_transaction(Pworker->c, Pworker->commits); }
		c_code { settle(Pworker->c, Pworker->commits); }
	od
}

/* Somebody inserts row 0, which commits late. */
proctype inserter()
{
	committed[0].status = READY
}

/* Leases end, of a worker that has none of its calls open. */
proctype time()
{
end:
	do
	:: atomic {
			lapses > 0 && !expired[A] ->
			lapses--;
			expired[A] = true;
			if
			:: open[A] == 0 -> told[A] = 0
			:: else
			fi
		}
	od
}

init
{
	atomic {
#ifdef LATE
		committed[0].status = ABSENT;
		run inserter();
#endif
		calls[A] = CALLS_A;
		calls[B] = CALLS_B;
		lapses = LAPSES;
		aborts = ABORTS;
		run worker(A);
		run worker(B);
		run time()
	}
}
