/*
 * guard.pml
 *
 * Transactions under token_guard (guard.c): a grant is checked and pinned when
 * they commit, and let go when others can see them.  Two sessions of one
 * owner, one of another, and a session that waits in line.
 */
#define NS	4
#define NP	0
#define NH	1

#define A	0
#define B	1					/* of the same owner */
#define C	2
#define W	3					/* waits */

#define FIRST	NAMED
#define SECOND	(NAMED + 1)

#include "token.inc"
#include "wait.inc"

bool checked[NS];				/* only for MUTANT(G3) */
bool spoiled[NS];				/* another owner was granted since */

c_code {
Request		requests[] = {
	{A, FIRST, 1, 1, 0, 0},
	{B, FIRST, 1, 1, 0, 0},
	{C, SECOND, 1, 1, 0, 0},
	{W, SESSION(W), 1, 0, 0, F_PUT},
};

/* Whose guarded work lies on both sides of this grant? */
static void
note_spoiled(int s)
{
	int			i;

	if (now.answer[s] == NEW)
		for (i = 0; i < NS; i++)
			if (now.guards[i] != 0 && req(i)->owner != req(s)->owner)
				now.spoiled[i] = 1;
}

/* tl_guard_add */
static void
guard_add(int s)
{
	int			i;

	remove_lapsed();
	i = grant_of(req(s)->owner);
	if (i >= 0)
		now.guards[s] = now.h[i].fence;
}

/* tl_guard_pin: check and pin in one step */
static int
guarded(int s)
{
	int			i;

	remove_lapsed();
	i = grant_with(now.guards[s]);
	if (MUTANT(G1))
		i = grant_of(req(s)->owner);
	return i >= 0 && is_live(i) ? i : -1;
}

static void
guard_check(int s)
{
	now.checked[s] = guarded(s) >= 0;
}

static void
guard_pin(int s)
{
	int			i = guarded(s);

	if (MUTANT(G3) && now.checked[s])
		i = grant_with(now.guards[s]);
	else if (i < 0)
	{
		/* an error: the transaction fails */
		now.guards[s] = 0;
		return;
	}
	if (i >= 0 && MUTANT(G2))
		now.h[i].pins = 1;
	else if (i >= 0)
	{
		now.h[i].pins++;
		now.guards[s] = now.h[i].fence;
	}
}

static void
commit(int s)
{
	if (now.guards[s] != 0 && now.spoiled[s])
		Uerror("commits across another's grant");
}

/* tl_guard_end, tl_grant_unpin */
static void
guard_end(int s)
{
	int			i;

	remove_lapsed();
	i = grant_with(now.guards[s]);
	now.guards[s] = now.spoiled[s] = now.checked[s] = 0;
	if (i < 0 || now.h[i].pins == 0 || --now.h[i].pins > 0)
		return;
	if (now.h[i].ended || has_lapsed(i))
		remove_holder(i);
	else if (!MUTANT(UNPIN))
		wake();
}
}

proctype client(byte s; byte n)
{
	do
	:: n > 0 ->
		atomic {
			n--;
			c_code {
				ask(Pclient->s);
				attempt(Pclient->s);
				note_spoiled(Pclient->s);
				note_grant(Pclient->s);
			}
			if
			:: answer[s] >= NEW
			:: else -> goto next
			fi
		}
		atomic {
			c_code { guard_add(Pclient->s); }
			if
			:: guards[s] != 0
			:: else -> goto next
			fi
		}
		/* here it works */
		if
		:: c_expr { MUTANT(G3) } -> c_code { guard_check(Pclient->s); }
		:: else
		fi;
		atomic {
			c_code { guard_pin(Pclient->s); }
			if
			:: guards[s] != 0
			:: else -> spoiled[s] = false; goto next
			fi
		}
		if
		:: c_expr { MUTANT(G3_EARLY) } ->
			/* lets go before others can see it */
			c_code {
				int f = now.guards[Pclient->s], p = now.spoiled[Pclient->s];
				guard_end(Pclient->s);
				now.guards[Pclient->s] = f;
				now.spoiled[Pclient->s] = p;
			}
		:: else
		fi;
		c_code { commit(Pclient->s); }
		c_code { guard_end(Pclient->s); }
next:
		skip
	:: s == B ->
		/* outside of a transaction of its own: a put for the owner */
		c_code { put_entry(Pclient->s); }
		break
	:: else -> break
	od
}

/* token_break */
proctype breaker()
{
	c_code { now.request[W] = W; break_entry(W); now.to_kick[W] = now.kick_serial[W] = 0; }
}

init
{
	atomic {
		request[B] = B;
		request[C] = C;
		request[W] = W;
#ifdef WAITS
		run client(A, 1);
		run client(B, 1);
		run waiter(W);
#else
		run client(A, 2);
		run client(B, 1);
		run client(C, 1);
#endif
		run breaker();
		run time()
	}
}
