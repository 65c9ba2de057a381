/*-------------------------------------------------------------------------
 *
 * page.h
 *	  The pages on which tokenlock keeps what outlives the server's memory.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_PAGE_H
#define TOKENLOCK_PAGE_H

#include "tokenlock.h"

#include "access/xlogdefs.h"
#include "utils/relcache.h"

/* The sequences whose pages are used. */
#define TL_FENCE_SEQUENCE	"tokenlock_fence"
#define TL_LEASE_SEQUENCE	"tokenlock_lease"

/* How long leases may still run after a crash: promise.c. */
typedef struct TlReservation
{
	int64		history;		/* tl_fence_history() when written */
	uint64		boot;			/* tl_boot() when written; 0: unknown */
	TlTime		longest;		/* ttl that may be promised */
	TlTime		until;			/* by that boot's clock: all are over */
	TlTime		grace;			/* largest tokenlock.grace they came under */
} TlReservation;

/* A long lease: record.c. */
typedef struct TlRecord
{
	uint64		fence;			/* 0: the slot is empty */
	uint64		boot;			/* tl_boot() when written; 0: unknown */
	TlTime		acquired;		/* by that boot's clock */
	TlTime		expires;		/* by that boot's clock; TL_NEVER: untimed */
	int64		wall_expires;	/* the same as TimestampTz */
	TlTime		ttl;
	Oid			role;
	int32		capacity;		/* as in TlHolder */
	uint8		name_len;
	uint8		owner_len;
	char		name[TL_NAME_MAX];
	char		owner[TL_NAME_MAX];
} TlRecord;

/*
 * Open a sequence of the extension, by its name, with this lock; the error
 * says what to do when it is missing.
 */
extern Relation tl_page_open(const char *sequence, int lockmode);

/* The reservation; false when none was ever written in this database. */
extern bool tl_page_read_reservation(Relation sequence,
									 TlReservation *reservation);

/* Write it, to be flushed by the caller. */
extern XLogRecPtr tl_page_write_reservation(Relation sequence,
											const TlReservation *reservation);

/* Slots for records that there are pages for, and how many there may be. */
#define TL_RECORDS_MAX	262144
extern int	tl_page_records(Relation sequence);

/* The record in this slot; false when there is none. */
extern bool tl_page_read_record(Relation sequence, int slot,
								TlRecord *record);

/* Write a record (NULL: empty the slot), to be flushed by the caller. */
extern XLogRecPtr tl_page_write_record(Relation sequence, int slot,
									   const TlRecord *record);

#endif							/* TOKENLOCK_PAGE_H */
