/*-------------------------------------------------------------------------
 *
 * session.h
 *	  Taking, renewing and giving back tokens.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_SESSION_H
#define TOKENLOCK_SESSION_H

#include "token.h"

/* Prepare this backend; each entry point calls it first. */
extern bool tl_session_attached;
extern void tl_session_attach_now(void);

static inline void
tl_session_attach(void)
{
	if (unlikely(!tl_session_attached))
		tl_session_attach_now();
}

/* The same, where the answer is to bind others: no standby, no parallel worker. */
extern void tl_session_attach_primary(void);

/* This session as an owner; the caller fills in a name if there is one. */
extern void tl_session_owner(TlOwner *owner);

/* Make a request, waiting as it says; the grant is in it afterwards. */
extern TlAnswer tl_session_get(TlRequest *request);

/*
 * Give the owner's grant back; fence is 0, or the only grant that is meant.
 * With a fence and no owner's name it may also be a lease of the role.
 * Returns false when there is no such grant.
 */
extern bool tl_session_put(const TlKey *key, const TlOwner *owner,
						   uint64 fence);

/*
 * The same at the end of a transaction or session, where nothing may fail: a
 * record on disk stays until somebody asks for the token.
 */
extern void tl_session_put_in_memory(const TlKey *key, const TlOwner *owner,
									 uint64 fence);

/* Raise an error when the owner's grant guards this transaction. */
extern void tl_session_check_put(const TlKey *key, const TlOwner *owner);

/* Give back all tokens of a named owner; returns how many they were. */
extern int64 tl_session_put_all_of(const TlOwner *owner);

/*
 * Restart the owner's lease, with a new ttl unless that is 0, and lengthen the
 * session's hold to this scope unless it is that long (TL_SCOPE_OWNER: any
 * is).  Returns false when there is no such grant.
 */
extern bool tl_session_renew(const TlKey *key, const TlOwner *owner,
							 uint64 fence, TlTime ttl, TlScope scope);

/* The fence of the owner's grant; 0 when there is none. */
extern uint64 tl_session_fence(const TlKey *key, const TlOwner *owner);

/* Is the owner's grant a shared one?  False when there is none. */
extern bool tl_session_shares(const TlKey *key, const TlOwner *owner);

/* What token_break ended, for the log. */
typedef struct TlBroken
{
	Oid			role;			/* in: of the grant that may be ended */
	int			pid;			/* 0 for a named owner */
	int			owner_len;
	char		owner[TL_NAME_MAX];
} TlBroken;

/*
 * End anybody's grant, which is a role's that the caller has checked with
 * tl_session_holder_role (InvalidOid: no such grant).  Returns false when it
 * is not there any more.
 */
extern Oid	tl_session_holder_role(const TlKey *key, uint64 fence);
extern bool tl_session_break(const TlKey *key, uint64 fence,
							 TlBroken *broken);

#endif							/* TOKENLOCK_SESSION_H */
