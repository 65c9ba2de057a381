/*
 * lease.pml
 *
 * Leases at the gate: the head sleeps on its latch until the clock or somebody
 * else wakes it.  And named owners that ask by two sessions.
 */
#define NS	4
#define NP	0
#define NH	1

#define L	0					/* has a lease when the others come */
#define A	1					/* waiters */
#define B	2
#define X	3					/* a get that does not wait */

#define LEADER	NAMED
#define OTHER	(NAMED + 1)
#define THIRD	(NAMED + 2)

#ifndef A_FLAGS
#define A_FLAGS	(F_TIMEOUT | F_PUT)
#endif

#include "token.inc"
#include "wait.inc"

c_code {
Request		requests[] = {
#ifdef LAPSES
	{L, LEADER, 1, 3, 0, 0},
	{A, SESSION(A), 1, 0, 0, A_FLAGS},
	{B, OTHER, 1, 1, 0, F_PUT},
	{X, THIRD, 1, 1, 0, 0},
	{L, LEADER, 1, 1, 0, 0},
#endif
#ifdef SESSIONS
	/* the leader has it for ever, once; its second session must not wait */
	{L, THIRD, 1, 1, 0, 0},
	{A, LEADER, 1, NEVER, 0, 0},
	{B, SESSION(B), 1, 0, 0, F_PUT},
	{X, LEADER, 1, NEVER, 0, 0},
#endif
};
}

proctype holder(byte s)
{
	if
	:: skip						/* it lapses */
#ifdef LAPSES
	:: /* renewed, to an earlier end perhaps */
		request[s] = 4;
		atomic { c_code { ask(Pholder->s); attempt(Pholder->s); } }
		atomic { c_code { note_grant(Pholder->s); } }
#endif
	:: PUT(Pholder)
	fi
}

proctype other(byte s)
{
	TRY(Pother)
}

#ifdef SESSIONS
/* When nothing happens any more: has everybody heard who has the token? */
proctype at_the_end()
{
	timeout ->
	if
	:: h[0].owner == LEADER -> assert(answer[A] >= NEW && answer[X] >= NEW)
	:: else -> assert(false)
	fi
}
#endif

init
{
	atomic {
		request[A] = A;
		request[B] = B;
		request[X] = X;
		c_code { ask(L); attempt(L); note_grant(L); }
		run holder(L);
		run waiter(A);
		run waiter(B);
#ifdef SESSIONS
		run waiter(X);
		run at_the_end();
#else
		run other(X);
#endif
		run time()
	}
}
