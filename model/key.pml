/*
 * key.pml
 *
 * Jobs that have the same key are handed out one at a time (job_turn.c,
 * job_turn_find.c): two workers, two rows of one key, READ COMMITTED.  What
 * claim.pml shows of leases is left out here.
 */
#define A	1
#define B	2
#define ROWS	2

/* status of a row */
#define READY	0
#define CLAIMED	1
#define DONE	2
#define ABSENT	3				/* its insert has not been committed */

#ifndef CALLS_A
#define CALLS_A	2
#endif
#ifndef CALLS_B
#define CALLS_B	2
#endif
#ifndef ABORTS
#define ABORTS	1
#endif

/* why a turn is given up: TlTurnReason */
#define EMPTY	1
#define BUSY	2
#define REST	3

typedef Version {
	byte status;
	byte sid
};

Version committed[ROWS];
Version newest[ROWS];			/* of whoever has it locked */
byte locked[ROWS];				/* by this worker's transaction; 0: nobody */
bool changed[ROWS];				/* newest is not committed yet */

/* TlTurn of the key */
bool turn;						/* there is one */
byte owner;
bool passed;
bool offered;
bool held;						/* held_until lies ahead */
bool news[3];					/* the version changed since it was read */
byte position;					/* rows before it were looked at */

/* calls */
byte snapshot[6];				/* status, [(worker - 1) * ROWS + row] */
byte snapshot_sid[6];
byte got[3];					/* bits: rows that this call hands out */
bool has_turn[3];				/* notes of job_xact.c */
bool frees[3];
bool given_up[3];				/* by this call, once */
byte calls[3];
byte aborts;
byte told[3];					/* bits: rows that a worker was told are its own */
bool in_call[3];
byte late;						/* bits: rows that came behind the position */

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

		now.snapshot[AT(c, row)] = seen->status;
		now.snapshot_sid[AT(c, row)] = seen->sid;
	}
}

static int
lock_row(int c, int row, int status)
{
	struct Version *newest;

	if (now.locked[row] != 0 && now.locked[row] != c)
		return 0;
	newest = now.changed[row] ? &now.newest[row] : &now.committed[row];
	if (newest->status != status || (status == CLAIMED && newest->sid != c))
		return 0;
	now.locked[row] = c;
	return 1;
}

static void
update(int c, int row, int status)
{
	now.newest[row].status = status;
	now.newest[row].sid = c;
	now.changed[row] = 1;
}

/*
 * job_turn.c
 */
static void
has_news(void)
{
	now.news[A] = now.news[B] = 1;
}

static void
discard(void)
{
	now.turn = now.owner = now.passed = now.offered = now.held = 0;
	has_news();
}

static void
offer(void)
{
	now.held = 0;
	now.offered = 1;
}

/* tl_turn_take: returns whether this row's turn was taken. */
static int
turn_take(int c)
{
	if (!now.turn)
		now.turn = 1;
	else if (now.owner != 0 ? now.owner != c || now.given_up[c] : now.held)
	{
		now.passed = 1;
		has_news();
		return 0;
	}
	now.offered = 0;
	now.owner = c;
	now.news[c] = 0;
	return 1;
}

/* tl_turn_give_up */
static void
give_up(int c, int reason, int ours)
{
	int			news = now.news[c] && !MUTANT(NEWS);

	if (reason == EMPTY && !news)
		now.passed = 0;
	else if (reason != EMPTY)
		now.passed = 1;
	now.given_up[c] = ours;
	if (ours)
		return;
	now.has_turn[c] = 0;
	now.owner = 0;
	if (!now.passed)
		discard();
	else if (reason == REST || (reason == BUSY && !news))
		now.held = 1;
	else
		offer();
}

/* tl_turn_end, at the end of the transaction */
static void
turn_end(int c, int commits)
{
	if (!now.turn || now.owner != c)
		return;
	now.owner = 0;
	now.passed |= !commits && !MUTANT(ABORTED);
	if (!commits && now.passed)
		offer();
	else if (now.passed)
		now.held = 1;
	else
		discard();
}

/* tl_turn_freed: a job of it was finished */
static void
turn_freed(void)
{
	if (!now.turn)
		return;
	has_news();
	if (now.owner != 0)
		return;
	if (now.passed)
		offer();
	else
		discard();
}

/*
 * job_turn_sql.c
 */

/* The first unfinished row, and whether one is claimed, in the snapshot. */
static int
first_row(int c)
{
	int			row;

	for (row = 0; row < ROWS; row++)
		if (now.snapshot[AT(c, row)] == READY)
			return row;
	return ROWS;
}

static int
one_is_claimed(int c)
{
	return now.snapshot[AT(c, 0)] == CLAIMED ||
		now.snapshot[AT(c, 1)] == CLAIMED;
}

/*
 * Calls
 */
static void
finish_told(int c)
{
	int			row;

	take_snapshot(c);
	for (row = 0; row < ROWS; row++)
		if ((now.told[c] & (1 << row)) &&
			now.snapshot[AT(c, row)] == CLAIMED && lock_row(c, row, CLAIMED))
		{
			update(c, row, DONE);
			now.frees[c] = 1;
		}
}

static void
take_own(int c)
{
	int			row;

	take_snapshot(c);
	for (row = 0; row < ROWS; row++)
		if (now.snapshot[AT(c, row)] == CLAIMED &&
			now.snapshot_sid[AT(c, row)] == c && lock_row(c, row, CLAIMED))
			now.got[c] |= 1 << row;
}

static void
set_claimed(int c)
{
	int			row;

	for (row = 0; row < ROWS; row++)
		if (now.got[c] & (1 << row))
			update(c, row, CLAIMED);
}

static void
end_transaction(int c, int commits)
{
	int			row;
	int			n = 0;

	for (row = 0; row < ROWS; row++)
	{
		if (now.locked[row] != c)
			continue;
		if (now.changed[row] && commits)
			now.committed[row] = now.newest[row];
		if (now.changed[row] && commits && now.newest[row].status == DONE)
			now.told[c] &= ~(1 << row);
		memset(&now.newest[row], 0, sizeof(now.newest[row]));
		now.changed[row] = now.locked[row] = 0;
	}
	for (row = 0; row < ROWS; row++)
		n += now.committed[row].status == CLAIMED;
	if (n > 1)
		Uerror("one key twice");
#ifndef LATE_ROW
	if (now.committed[1].status != READY && now.committed[0].status == READY)
		Uerror("out of order");
#endif
	if (commits)
		now.told[c] |= now.got[c];
}

/* Is every row that could be handed out where a claim comes across it? */
static void
check_found(void)
{
	int			row;

	if (now.in_call[A] || now.in_call[B])
		return;
	for (row = 0; row < ROWS; row++)
		if (now.committed[row].status == CLAIMED)
			return;
	for (row = 0; row < ROWS; row++)
		if (now.committed[row].status == READY && row < now.position &&
			!(now.late & (1 << row)) &&
			!(now.turn && now.passed && (now.offered || now.held)))
			Uerror("a row that nobody will find");
}

static void
settle(int c, int commits)
{
	if (now.has_turn[c])
		turn_end(c, commits);
	if (now.frees[c] && commits)
		turn_freed();
	now.has_turn[c] = now.frees[c] = now.given_up[c] = now.news[c] = 0;
	now.got[c] = 0;
	memset(&now.snapshot[AT(c, 0)], 0, ROWS);
	memset(&now.snapshot_sid[AT(c, 0)], 0, ROWS);
	now.in_call[c] = 0;
	check_found();
}
}

/*
 * One call: finish, own rows, turns on offer, rows behind the position.
 */
proctype worker(byte c)
{
	byte at;					/* next row of the cursor */
	byte row;
	bool ours;
	bool tried;
	bool commits;
	bool from_offer;
	byte seen;					/* bits: what the cursor's snapshot has shown */

	do
	:: calls[c] == 0 -> break
	:: atomic {
			calls[c] > 0 ->
			calls[c]--;
			in_call[c] = true;
			if
			:: told[c] != 0 -> c_code { finish_told(Pworker->c); }
			:: true
			fi
		}
		atomic {
			c_code { take_own(Pworker->c); };
			if
			:: got[c] != 0 -> goto found
			:: else
			fi
		}
		/* find_heads of a turn on offer, with a snapshot; then its turn */
		atomic {
			from_offer = offered;
			if
			:: offered -> news[c] = false; c_code { take_snapshot(Pworker->c); }
			:: else -> goto walk
			fi
		}
		atomic {
			c_code { Pworker->row = first_row(Pworker->c); };
			if
			:: c_expr { (one_is_claimed(Pworker->c)) } ->
				/* tl_turn_found */
				if
				:: turn && owner == 0 && !news[c] -> offered = false; held = true
				:: else
				fi;
				goto walk
			:: c_expr { (!one_is_claimed(Pworker->c) && Pworker->row == ROWS) } ->
				if
				:: turn && owner == 0 && !news[c] -> c_code { discard(); }
				:: else
				fi;
				goto walk
			:: else
			fi
		}
		atomic {
			/* tl_turn_take_offered */
			if
			:: turn && (owner == 0 || owner == c) ->
				ours = owner == c;
				offered = false;
				owner = c;
				news[c] = false;
				has_turn[c] = true;
				goto verify
			:: else -> goto walk
			fi
		}

walk:	/* a cursor on what is ready */
		atomic {
			from_offer = false;
			c_code {
				int r;
				take_snapshot(Pworker->c);
				Pworker->seen = 0;
				for (r = now.position; r < ROWS; r++)
					if (now.snapshot[AT(Pworker->c, r)] == READY)
						Pworker->seen |= 1 << r;
			};
			at = position
		}
next:
		atomic {
			if
			:: at >= ROWS -> goto found
			:: at < ROWS && !(seen & (1 << at)) -> at++; goto next
			:: at < ROWS && seen & (1 << at) -> row = at; at++
			fi;
			ours = (turn && owner == c);
			if
			:: c_expr { (turn_take(Pworker->c)) } -> has_turn[c] = true
			:: else -> goto next
			fi
		}

verify:	/* a new snapshot; then the lock, with the newest version tested */
		tried = false;
verify_again:
		if
		:: c_expr { (MUTANT(J4) && !Pworker->from_offer) }
		:: else -> c_code { take_snapshot(Pworker->c); }
		fi;
		atomic {
			c_code {
				if (!one_is_claimed(Pworker->c) &&
					first_row(Pworker->c) == Pworker->row &&
					lock_row(Pworker->c, Pworker->row, READY))
					now.got[Pworker->c] |= 1 << Pworker->row;
			};
			if
			:: got[c] != 0 -> goto found
			:: else
			fi
		}
		/* look_up */
		c_code { take_snapshot(Pworker->c); }
		atomic {
			c_code { Pworker->row = first_row(Pworker->c); };
			if
			:: c_expr { (one_is_claimed(Pworker->c)) } ->
				c_code { give_up(Pworker->c, BUSY, Pworker->ours); }
			:: c_expr { (!one_is_claimed(Pworker->c) && Pworker->row == ROWS) } ->
				c_code { give_up(Pworker->c, EMPTY, Pworker->ours); }
			:: c_expr { (!one_is_claimed(Pworker->c) && Pworker->row < ROWS && Pworker->tried) } ->
				c_code { give_up(Pworker->c, REST, Pworker->ours); }
			:: else -> tried = true; goto verify_again
			fi;
			if
			:: from_offer -> goto walk
			:: else -> goto next
			fi
		}

found:
		atomic {
			/* tl_position_advance: as far as rows were looked at */
			c_code {
				int r;
				for (r = 0; r < Pworker->at; r++)
					if ((Pworker->seen & (1 << r)) && r + 1 > now.position)
						now.position = r + 1;
				/* what its snapshot did not show is for the look behind */
				for (r = 0; r < Pworker->at; r++)
					if (r < now.position && !(Pworker->seen & (1 << r)))
						now.late |= 1 << r;
				set_claimed(Pworker->c);
				if (MUTANT(J4_EARLY) && now.has_turn[Pworker->c])
				{
					turn_end(Pworker->c, 1);
					now.has_turn[Pworker->c] = 0;
				}
			};
			at = 0; seen = 0; row = 0; ours = false; tried = false;
			from_offer = false;
			commits = true;
			if
			:: aborts > 0 -> aborts--; commits = false
			:: true
			fi
		}
		c_code { end_transaction(Pworker->c, Pworker->commits); }
		c_code { settle(Pworker->c, Pworker->commits); }
	od
}

#ifdef LATE_ROW
proctype inserter()
{
	atomic {
		committed[LATE_ROW].status = READY;
		if
		:: position > LATE_ROW -> late = 1 << LATE_ROW
		:: else
		fi
	}
}
#endif

init
{
	atomic {
#ifdef LATE_ROW
		committed[LATE_ROW].status = ABSENT;
		run inserter();
#endif
		calls[A] = CALLS_A;
		calls[B] = CALLS_B;
		aborts = ABORTS;
		run worker(A);
		run worker(B)
	}
}
