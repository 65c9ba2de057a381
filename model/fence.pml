/*
 * fence.pml
 *
 * Fence numbers (fence.c): drawn in shared memory, reserved on a page before.
 * Each grant of one token must have a larger number than all before it.
 */
#ifndef GRANTS
#define GRANTS	3				/* of each of two sessions */
#endif
#ifndef CRASHES
#define CRASHES	2
#endif
#ifndef FAILOVERS
#define FAILOVERS	1
#endif

#define EPOCH	32				/* the counter below it has 5 bits here */
#define BLOCK	2

/* shared memory */
byte next;
byte limit;						/* 0: unknown */
bool locked;					/* the token */
byte last;						/* the latest grant's */

/* the page: end of the last block, and whose history it is of */
byte page;
byte page_history;
byte disk;
byte disk_history;
byte standby;
byte standby_history;

byte history;
bool up;
byte server;					/* how often it was started */
byte crashes, failovers;

c_decl {
static const char *mutant_name = "";
static void __attribute__((constructor))
read_mutant(void)
{
	if (getenv("MUTANT"))
		mutant_name = getenv("MUTANT");
}
#define MUTANT(name)	(*mutant_name && !strcmp(mutant_name, #name))
}

#define DO(s) \
	if \
	:: server != mine || !up -> goto lost \
	:: atomic { server == mine && up -> s } \
	fi

proctype session()
{
	byte grants = GRANTS;
	byte mine;
	byte fence;
	byte start;
	byte end;

	do
	:: grants == 0 -> break
	:: atomic { up && grants > 0 -> grants--; mine = server };

prepare:	/* tl_fence_prepare */
		DO(if :: next < limit -> goto draw :: else -> start = limit fi);
		/* reserve_on_page, with the buffer's lock */
		DO(
			if
			:: page_history == history || c_expr { (MUTANT(R11)) } ->
				start = (start > page -> start : page)
			:: else ->
				start = (page / EPOCH + 1) * EPOCH
			fi;
			end = start + BLOCK;
			page = end;
			page_history = history);
		if
		:: c_expr { (MUTANT(R1)) }
		:: else ->
			/* a flush is of all that was written before */
			DO(disk = page; disk_history = page_history)
		fi;
		DO(
			if
			:: limit == 0 -> next = start
			:: else
			fi;
			if
			:: limit < end -> limit = end
			:: else
			fi);
		start = 0;
		end = 0;

draw:	/* with the token's lock */
		if
		:: c_expr { (MUTANT(DRAW)) } -> DO(fence = next; next++)
		:: else
		fi;
		DO(
			if
			:: c_expr { (MUTANT(DRAW)) }
			:: else -> fence = next; next++
			fi;
			if
			:: fence >= limit -> goto prepare
			:: else
			fi;
			/* granted, and answered at once: the worst case */
			assert(fence > last);
			last = fence);
lost:
		atomic { start = 0; end = 0; fence = 0 }
	od
}

proctype world()
{
end:
	do
	:: atomic {
			up && crashes > 0 ->
			crashes--;
			up = false;
			next = 0;
			limit = 0;
			page = disk;
			page_history = disk_history
		}
	:: atomic {
			!up ->
			if
			:: true
			:: failovers > 0 ->
				failovers--;
				disk = standby;
				disk_history = standby_history;
				page = disk;
				page_history = disk_history;
				history++
			fi;
			up = true;
			server++
		}
	:: atomic { up && failovers > 0 -> standby = disk; standby_history = disk_history }
	od
}

init
{
	atomic {
		up = true;
		page = 1;
		disk = 1;
		standby = 1;
		crashes = CRASHES;
		failovers = FAILOVERS;
		run session();
		run session();
		run world()
	}
}
