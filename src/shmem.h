/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  tokenlock's shared memory: one fixed area of tokenlock.memory, the hash
 *	  tables in it, and the account of what they use.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_SHMEM_H
#define TOKENLOCK_SHMEM_H

#include "tokenlock.h"

#include "lib/dshash.h"
#include "utils/dsa.h"

/* The hash tables that live in the area. */
typedef enum TlTableId
{
	TL_TABLE_TOKENS,			/* TlToken, token.c */
	TL_TABLE_DATABASES,			/* TlDatabase, database.c */
	TL_TABLE_NAMES,				/* TlNameStats, stats.c */
	TL_TABLE_JOB_TABLES,		/* TlJobTable, job_position.c */
	TL_TABLE_WORKERS			/* TlWorker, job_worker.c */
} TlTableId;

#define TL_TABLE_COUNT	(TL_TABLE_WORKERS + 1)

/*
 * Key of an entry that belongs to a database and bears a name: a token, or
 * (with the table's oid) a worker.  Names are bytes: they are compared
 * without regard to any collation.
 */
typedef struct TlKey
{
	uint32		hash;			/* of the rest */
	Oid			database;
	Oid			relation;		/* InvalidOid for a token */
	uint8		len;			/* of name; 0 where the relation is the key */
	char		name[TL_NAME_MAX];	/* not terminated */
} TlKey;

StaticAssertDecl(sizeof(TlKey) == 3 * sizeof(uint32) + 1 + TL_NAME_MAX,
				 "TlKey must not have padding");

/* A key in this database. */
extern void tl_key_init(TlKey *key, Oid relation, const char *name, int len);

/* The same, in any database. */
extern void tl_key_init_in(TlKey *key, Oid database, Oid relation,
						   const char *name, int len);

/* Hash and comparison of TlKey, for backend-local hash tables too. */
extern uint32 tl_key_hash(const void *key, Size size);
extern int	tl_key_compare(const void *a, const void *b, Size size);

/* Called from _PG_init while the server preloads libraries. */
extern void tl_shmem_init(void);

/*
 * Describe a table, from _PG_init: the size of its entries, which begin with
 * a TlKey, and (or NULL) a function that frees the entries that have lapsed.
 * That one is called without locks when the area is full.
 */
typedef void (*TlSweepFunction) (void);
extern void tl_shmem_define_table(TlTableId id, Size entry_size,
								  TlSweepFunction sweep);

/*
 * Keep memory back for so many entries of a table, which are then not part of
 * the account: they are there also when memory is full, and their coming and
 * going makes no room for others.  After tl_shmem_define_table.
 */
extern void tl_shmem_keep_back(TlTableId id, int entries);

/*
 * Make the area usable by this backend.  Raises the error that says how to
 * preload tokenlock when it is not.  Cheap when done before.
 */
extern void tl_shmem_attach(void);

/*
 * Set a function, from _PG_init, that the postmaster is to call when it has
 * made the shared memory: nobody else runs then.  There and when it ends it
 * may use the tables between these two.
 */
extern void tl_shmem_on_start(void (*function) (void));
extern void tl_shmem_attach_postmaster(void);
extern void tl_shmem_detach_postmaster(void);

/* Is tokenlock preloaded, so that the former can succeed? */
extern bool tl_shmem_is_there(void);

/* One of the tables, after tl_shmem_attach. */
extern dshash_table *tl_shmem_table(TlTableId id);

/* A number that was never given before, for the keys of our locks. */
extern uint64 tl_shmem_next_serial(void);

/*
 * Memory.  Everything that is taken from the area goes through here, so that
 * it ends in our own error, not in the middle of a hash table's work.
 *
 * tl_shmem_make_room raises that error unless an entry of a table may be
 * inserted; to be called before dshash_find_or_insert, without any lock.
 * tl_shmem_has_room answers instead.
 * tl_shmem_count_entry notes that one was inserted (+1) or deleted (-1), and
 * tl_shmem_entries says how many there are.
 *
 * tl_shmem_alloc_or_error raises it, too, and is called without locks;
 * tl_shmem_alloc returns InvalidDsaPointer instead and may be called with a
 * lock held.
 */
extern void tl_shmem_make_room(TlTableId id);
extern bool tl_shmem_has_room(TlTableId id);
extern void tl_shmem_count_entry(TlTableId id, int change);
extern int	tl_shmem_entries(TlTableId id);
extern dsa_pointer tl_shmem_alloc_or_error(Size size);
extern dsa_pointer tl_shmem_alloc(Size size);
extern void tl_shmem_free(dsa_pointer pointer, Size size);
extern void *tl_shmem_address(dsa_pointer pointer);

/* Bytes in use, and how many there may be. */
extern Size tl_shmem_used(void);
extern Size tl_shmem_limit(void);

/*
 * A few bytes for each process, zero at the server's start.  Their number is
 * tl_shmem_slots().  The first ones are written by that process alone
 * (stats.c), those from TL_SLOT_WAITER on are of job_line.c.
 */
#define TL_SLOT_SIZE	128
#define TL_SLOT_WAITER	96
extern void *tl_shmem_slot(int procno);
extern int	tl_shmem_slots(void);

/*
 * When the server, or after a crash its memory, was started, and when it had
 * ended its recovery since (0 when nobody has noted that yet).
 */
extern TlTime tl_shmem_started(void);
extern void tl_shmem_note_recovered(void);
extern TlTime tl_shmem_recovered(void);

/*
 * The earliest end of any lease, to know whether a sweep is worth its while.
 * It may be too early (leases are renewed), never too late.  A sweep begins
 * with tl_shmem_expiry_begin_sweep, which answers false when nothing can have
 * lapsed, and else forgets the time; the sweep then notes what it leaves.
 */
extern void tl_shmem_expiry_note(TlTime expires);
extern bool tl_shmem_expiry_begin_sweep(TlTime now);

#endif							/* TOKENLOCK_SHMEM_H */
