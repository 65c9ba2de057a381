/*
 * gate.pml
 *
 * The two locks of the gate, with holders that keep a hold lock: sessions
 * that take the token alone and without an end.
 */
#define NS	4
#define NP	0
#define NH	1

#define L	0					/* the holder that the others find */
#define A	1					/* waiters */
#define B	2
#define X	3					/* somebody else: a try, or a break */

#ifndef A_FLAGS
#define A_FLAGS	F_CANCEL
#endif
#ifndef A_WANTS_R
#define A_WANTS_R 0
#endif

#include "token.inc"
#include "wait.inc"

c_code {
Request		requests[] = {
	{L, SESSION(L), 1, 0, 0, 0},
	{A, SESSION(A), 1, 0, 0, A_FLAGS | F_PUT | A_WANTS_R},
	{B, SESSION(B), 1, 0, 0, F_PUT},
	{X, SESSION(X), 1, 0, 0, 0},
	{L, SESSION(L), 1, 1, 0, 0},
};
}

/* It has the token when the others come. */
proctype holder(byte s)
{
#ifdef PUTS
	PUT(Pholder);
	TRY(Pholder);
	PUT(Pholder);
	if
	:: END(Pholder)
	:: skip						/* its transaction stays open: an idle one */
	fi
#endif
#ifdef DEADLOCK
	LOCK_TABLE(Pholder);
	PUT(Pholder);
	END(Pholder)
#endif
#ifdef TRIED
	PUT(Pholder);
	END(Pholder)
#endif
#ifdef BROKEN
	if
	:: skip						/* idle, with all its locks */
	:: TRY(Pholder);
		PUT(Pholder)
	fi;
#endif
#ifdef UNLOCK_ALL
	c_code { unlock_all(Pholder->s); }
#ifdef IDLE
	goto idle;
#endif
	if
	:: skip
	:: /* its next call takes a lock again */
		atomic {
			if
			:: c_expr { (lost_lock(Pholder->s)) } -> 
				c_code { give_hold_lock(Pholder->s); }
			:: else
			fi
		}
		if
		:: skip
		:: LOCK_TABLE(Pholder)
		fi
	fi;
	PUT(Pholder);
	END(Pholder)
#endif
#ifdef TIMED
	/* the same request with a ttl */
	request[s] = 4;
	atomic { c_code { attempt(Pholder->s); } }
	c_code { note_grant(Pholder->s); }
	/* then it is idle */
#endif
idle:
	skip
}

proctype other(byte s)
{
#ifdef BROKEN
	c_code { break_entry(Pother->s); }
	KICK(Pother)
#else
	TRY(Pother);
	if
	:: answer[s] >= NEW ->
#ifdef TRIED
		LOCK_TABLE(Pother);
#endif
		PUT(Pother)
	:: else
	fi;
	END(Pother)
#endif
}

init
{
	atomic {
		request[A] = A;
		request[B] = B;
		request[X] = X;
		c_code { ask(L); attempt(L); note_grant(L); }
#ifdef R
		table_lock = R;
#endif
		run holder(L);
		run waiter(A);
		run waiter(B);
#if !defined(PUTS) && !defined(UNLOCK_ALL)
		run other(X);
#endif
#ifdef TIMED
		run time()
#endif
	}
}
