/*
 * line.pml
 *
 * What stands in line beside the gate: places of owners, upgrades of shared
 * holders; and holders that let others in beside them.
 */
#define NS	4

#ifdef PLACED
#define NP	1
#define NH	1
#endif
#ifdef UPGRADES
#define NP	0
#define NH	3
#endif
#ifdef PERMITS
#define NP	0
#define NH	3
#endif

#define L	0					/* has the token when the others come */
#define A	1
#define B	2
#define P	3

#define LEADER			NAMED
#define PLACED_OWNER	PLACES

#ifndef A_FLAGS
#define A_FLAGS	0
#endif
#ifndef P_FLAGS
#define P_FLAGS	0
#endif
#ifndef KEEP
#define KEEP	1
#endif

#include "token.inc"
#include "wait.inc"

c_code {
Request		requests[] = {
#ifdef PLACED
	{L, LEADER, 1, 1, 0, 0},
	{A, SESSION(A), 1, 0, 0, A_FLAGS | F_PUT},
	{B, SESSION(B), 1, 0, 0, F_PUT},
#ifdef POLLS
	{P, PLACED_OWNER, 1, 1, KEEP, 0},
#else
	{P, PLACED_OWNER, 1, 1, KEEP, P_FLAGS},
#endif
#endif
#ifdef UPGRADES
	{L, SESSION(L), 0, 0, 0, 0},
	{A, SESSION(A), 1, 0, 0, F_PUT},
	{B, SESSION(B), 0, 0, 0, A_FLAGS | F_PUT},
	{P, SESSION(P), 0, 0, 0, F_PUT},
	{L, SESSION(L), 1, 0, 0, P_FLAGS | F_WANTS_R | F_PUT},
	{P, SESSION(P), 1, 0, 0, F_PUT},
#endif
#ifdef PERMITS
	{L, SESSION(L), L_CAPACITY, 0, 0, 0},
	{A, SESSION(A), A_CAPACITY, 0, 0, A_FLAGS | F_PUT},
	{B, SESSION(B), B_CAPACITY, 0, 0, F_PUT},
	{P, SESSION(P), P_CAPACITY, 0, 0, 0},
#endif
};
}

/* The holder that the others find. */
proctype holder(byte s)
{
	if
	:: PUT(Pholder)
#ifdef PLACED
	:: skip						/* a lease: it lapses */
#endif
	fi
}

#ifdef POLLS
/* An owner that asks again and again, and so keeps its place. */
proctype poller(byte s)
{
	do
	:: atomic {
			c_code { ask(Ppoller->s); attempt(Ppoller->s); }
			if
			:: answer[s] >= NEW -> break
			:: else
			fi
		}
	od;
	atomic { c_code { note_grant(Ppoller->s); } }
}
#endif

proctype other(byte s)
{
	TRY(Pother);
	if
	:: answer[s] >= NEW -> PUT(Pother)
#ifdef STAYS
	:: skip						/* it keeps the token */
#endif
	:: else
	fi
}

init
{
	atomic {
		request[A] = A;
		request[B] = B;
		request[P] = P;
		c_code { ask(L); attempt(L); note_grant(L); }
#ifdef UPGRADES
		/* L and P share it; L wants it alone, and P puts or wants the same */
		c_code { ask(P); attempt(P); note_grant(P); }
		table_lock = A;
		request[L] = 4;
		run waiter(L);
		if
		:: run holder(P)
		:: request[P] = 5; run waiter(P)
		fi;
#else
		run holder(L);
#endif
		run waiter(A);
#ifndef WITHOUT_B
		run waiter(B);
#endif
#ifdef PERMITS
		run other(P);
#endif
#ifdef PLACED
#ifdef POLLS
		run poller(P);
#else
		run waiter(P);
#endif
#endif
		run time()
	}
}
