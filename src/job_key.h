/*-------------------------------------------------------------------------
 *
 * job_key.h
 *	  Keys of job tables as points in shared memory, and ranges of them.
 *
 * A point is a value of the key column in at most TL_POINT_MAX bytes.  What is
 * longer is not kept, and whoever uses a point copes with not knowing it.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_KEY_H
#define TOKENLOCK_JOB_KEY_H

#include "tokenlock.h"

#include "fmgr.h"

#define TL_POINT_MAX	64

typedef struct TlPoint
{
	bool		known;
	uint8		len;			/* bytes of data */
	char		data[TL_POINT_MAX];
} TlPoint;

/* Both ends belong to it; it is known when both are. */
typedef struct TlRange
{
	TlPoint		lo;
	TlPoint		hi;
} TlRange;

#define tl_range_known(range)	((range)->lo.known && (range)->hi.known)

/* What must be the same for two points to be comparable, kept beside them. */
typedef struct TlKeyStamp
{
	int32		column;			/* its number: the owner can choose another */
	Oid			type;
	Oid			collation;
} TlKeyStamp;

#define tl_stamp_same(a, b)	((a)->column == (b)->column && \
							 (a)->type == (b)->type && \
							 (a)->collation == (b)->collation)

/* The key column's type in this backend. */
typedef struct TlKeyType
{
	TlKeyStamp	stamp;
	int16		len;
	bool		byval;
	char		align;
	FmgrInfo	compare;
} TlKeyType;

/*
 * Write a value down as a point.  It must not be stored out of line or
 * compressed if tl_point_needs_detoast says so for it: such a one is first to
 * be detoasted by the caller.
 */
extern void tl_point_set(TlPoint *point, const TlKeyType *type, Datum value);
extern bool tl_point_needs_detoast(const TlKeyType *type, Datum value);

/* The point as a value again, allocated where needed. */
extern Datum tl_point_value(const TlPoint *point, const TlKeyType *type);

/*
 * Order of two points, both known.  Runs the type's comparison function,
 * which may be anything: not to be called with a lock held.
 */
extern int	tl_point_compare(const TlPoint *a, const TlPoint *b,
							 const TlKeyType *type);

/* Are they the same, byte for byte? */
extern bool tl_point_same(const TlPoint *a, const TlPoint *b);
extern bool tl_value_same(Datum a, Datum b, int16 len, bool byval);

/* A hash of these bytes. */
extern uint32 tl_value_hash(Datum value, int16 len, bool byval);

/* Widen a range so that it holds another; unknown if either is. */
extern void tl_range_widen(TlRange *range, const TlRange *more,
						   const TlKeyType *type);

extern void tl_range_forget(TlRange *range);

#endif							/* TOKENLOCK_JOB_KEY_H */
