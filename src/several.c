/*-------------------------------------------------------------------------
 *
 * several.c
 *	  Several tokens at once: all or none.
 *
 * They are taken one after the other, in the order of their bytes, so that
 * callers with lists in whatever order never wait for one another in a circle.
 *
 * While it waits for the rest, what it got must not lapse, and all leases are
 * to start together.  So new grants are untimed until all are there, named
 * owners' too, which would then outlive this session: they are remembered, and
 * given back on refusal, and by the callbacks at an abort and at exit.  What
 * the owner held before is neither put nor renewed when that happens.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "clock.h"
#include "describe.h"
#include "session.h"
#include "several.h"
#include "utils/memutils.h"

/* A token of the list, once the owner has it. */
typedef struct TlMember
{
	TlKey		key;
	uint64		fence;
	bool		taken;			/* by this call, not before it */
} TlMember;

/* The list of a call under way, and where the call was made. */
static TlMember *members = NULL;
static int	nmembers = 0;
static TlOwner members_owner;
static SubTransactionId members_in;

static bool take_all(const TlKey *keys, int n, const TlRequest *template,
					 TlTime deadline);
static bool restart_all(TlTime ttl, TlScope scope);
static void give_back(bool in_memory);

static int
compare_keys(const void *a, const void *b)
{
	const TlKey *x = a;
	const TlKey *y = b;
	int			order = memcmp(x->name, y->name, Min(x->len, y->len));

	return order != 0 ? order : (int) x->len - (int) y->len;
}

bool
tl_several_get(TlKey *keys, int n, const TlRequest *template)
{
	TlTime		deadline = tl_time_add(tl_now(), template->wait);
	int			distinct = 0;
	bool		got = false;

	qsort(keys, n, sizeof(TlKey), compare_keys);
	for (int i = 0; i < n; i++)
		if (i == 0 || compare_keys(&keys[distinct - 1], &keys[i]) != 0)
			keys[distinct++] = keys[i];

	members = MemoryContextAllocHuge(TopMemoryContext,
									 Max(distinct, 1) * sizeof(TlMember));
	nmembers = 0;
	members_owner = template->owner;
	members_in = GetCurrentSubTransactionId();

	/*
	 * A lease that was held before may lapse meanwhile.  It is not for this
	 * call to hold it back; begin anew while there is time.
	 */
	do
	{
		got = take_all(keys, distinct, template, deadline) &&
			restart_all(template->ttl, template->scope);
		if (!got)
			give_back(false);
	} while (!got && tl_now() < deadline);

	pfree(members);
	members = NULL;
	return got;
}

static bool
take_all(const TlKey *keys, int n, const TlRequest *template,
		 TlTime deadline)
{
	for (int i = 0; i < n; i++)
	{
		TlRequest	request = *template;
		TlMember   *member = &members[nmembers];
		TlAnswer	answer;

		member->key = request.key = keys[i];
		member->taken = false;
		member->fence = tl_session_fence(&keys[i], &template->owner);
		if (member->fence != 0)
		{
			if (tl_session_shares(&keys[i], &template->owner))
				ereport(ERROR,
						(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						 errmsg("token \"%s\" is held shared", tl_key_name(&keys[i])),
						 errdetail("Several tokens are taken to have them alone, and a failure could not undo that."),
						 errhint("Put it first, or use token_get to have it alone.")));
			nmembers++;
			continue;
		}

		request.ttl = 0;
		request.untimed = true;
		request.wait = deadline == TL_NEVER ? TL_NEVER :
			Max(deadline - tl_now(), 0);
		answer = tl_session_get(&request);
		if (answer < TL_ANSWER_NEW)
			return false;
		member->fence = request.grant.fence;
		member->taken = answer == TL_ANSWER_NEW;
		nmembers++;
	}
	return true;
}

/*
 * Start all leases together, and make what was held before last as long as the
 * rest.  False when one has lapsed.
 */
static bool
restart_all(TlTime ttl, TlScope scope)
{
	for (int i = 0; i < nmembers; i++)
		if (!members[i].taken &&
			tl_session_fence(&members[i].key, &members_owner) !=
			members[i].fence)
			return false;
	for (int i = 0; i < nmembers; i++)
	{
		TlTime		own = ttl;

		if (own == 0 && members_owner.named && members[i].taken)
			own = (TlTime) tl_default_ttl * 1000;
		if (!tl_session_renew(&members[i].key, &members_owner,
							  members[i].fence, own, scope))
			return false;
	}
	return true;
}

static void
give_back(bool in_memory)
{
	while (nmembers > 0)
	{
		TlMember   *member = &members[--nmembers];

		if (!member->taken)
			continue;
		if (in_memory)
			tl_session_put_in_memory(&member->key, &members_owner,
									 member->fence);
		else
			tl_session_put(&member->key, &members_owner, member->fence);
	}
}

void
tl_several_abort(SubTransactionId subid)
{
	if (members == NULL ||
		(subid != InvalidSubTransactionId && subid != members_in))
		return;
	give_back(true);
	pfree(members);
	members = NULL;
}
