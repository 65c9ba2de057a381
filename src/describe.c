/*-------------------------------------------------------------------------
 *
 * describe.c
 *	  Telling people about tokens, as far as they may know.
 *
 * A token's name can say much (a customer, a release), so it shows, with its
 * owner and process, only to roles that have the holder's privileges or those
 * of pg_read_all_stats.  To the others it shows that something is held.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "compat.h"
#include "describe.h"
#include "miscadmin.h"
#include "utils/acl.h"

/* What is copied of a holder while its token is locked. */
typedef struct HolderFacts
{
	Oid			role;
	int			pid;
	int			owner_len;
	char		owner[TL_NAME_MAX];
} HolderFacts;

bool
tl_may_see_all(void)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

bool
tl_may_see(Oid role)
{
	return tl_may_see_all() || has_privs_of_role(GetUserId(), role);
}

char *
tl_key_name(const TlKey *key)
{
	return pnstrdup(key->name, key->len);
}

char *
tl_describe_holder(const TlRequest *request)
{
	HolderFacts facts;
	TlHolder   *holder = NULL;
	TlToken    *token = tl_token_lock(&request->key, false);
	char	   *name;
	char	   *role;

	/* copy, unlock, and then ask the catalogs */
	if (token)
	{
		holder = tl_holder_at(token->holders);
		if (holder)
		{
			facts.role = holder->role;
			facts.pid = holder->pid;
			facts.owner_len = holder->owner_len;
			memcpy(facts.owner, holder->owner, holder->owner_len);
		}
		tl_token_unlock(token);
	}
	if (!holder)
		return NULL;

	name = tl_key_name(&request->key);
	if (!tl_may_see(facts.role))
		return psprintf(_("Token \"%s\" is held by another role."), name);
	role = GetUserNameFromId(facts.role, true);
	if (role == NULL)
		role = psprintf("%u", facts.role);
	if (facts.owner_len == 0)
		return psprintf(_("Token \"%s\" is held by process %d of role \"%s\"."),
						name, facts.pid, role);
	return psprintf(_("Token \"%s\" is held by owner \"%s\" of role \"%s\"."),
					name, pnstrdup(facts.owner, facts.owner_len), role);
}

char *
tl_describe_wait(const TlRequest *request, const char *holder,
				 const char *context)
{
	char	   *line = psprintf(_("while waiting for token \"%s\""),
								tl_key_name(&request->key));

	if (holder)
		line = psprintf("%s\n%s", line, holder);
	return context ? psprintf("%s\n%s", line, context) : line;
}
