/*-------------------------------------------------------------------------
 *
 * job_key.c
 *	  Keys of job tables as points in shared memory, and ranges of them.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "job_key.h"
#include "utils/datum.h"

void
tl_point_set(TlPoint *point, const TlKeyType *type, Datum value)
{
	const char *data;
	Size		len;

	Assert(!tl_point_needs_detoast(type, value));
	if (type->byval)
	{
		data = (const char *) &value;
		len = sizeof(Datum);
	}
	else if (type->len > 0)
	{
		data = DatumGetPointer(value);
		len = type->len;
	}
	else
	{
		data = VARDATA_ANY(DatumGetPointer(value));
		len = VARSIZE_ANY_EXHDR(DatumGetPointer(value));
	}

	point->known = len <= TL_POINT_MAX;
	if (point->known)
	{
		point->len = len;
		memcpy(point->data, data, len);
	}
}

bool
tl_point_needs_detoast(const TlKeyType *type, Datum value)
{
	return type->len == -1 &&
		(VARATT_IS_EXTERNAL(DatumGetPointer(value)) ||
		 VARATT_IS_COMPRESSED(DatumGetPointer(value)));
}

Datum
tl_point_value(const TlPoint *point, const TlKeyType *type)
{
	Assert(point->known);
	if (type->byval)
	{
		Datum		value;

		memcpy(&value, point->data, sizeof(Datum));
		return value;
	}
	else if (type->len > 0)
	{
		char	   *value = palloc(type->len);

		memcpy(value, point->data, type->len);
		return PointerGetDatum(value);
	}
	else
	{
		struct varlena *value = palloc(VARHDRSZ + point->len);

		SET_VARSIZE(value, VARHDRSZ + point->len);
		memcpy(VARDATA(value), point->data, point->len);
		return PointerGetDatum(value);
	}
}

int
tl_point_compare(const TlPoint *a, const TlPoint *b, const TlKeyType *type)
{
	return DatumGetInt32(FunctionCall2Coll(unconstify(FmgrInfo *, &type->compare),
										   type->stamp.collation,
										   tl_point_value(a, type),
										   tl_point_value(b, type)));
}

bool
tl_point_same(const TlPoint *a, const TlPoint *b)
{
	if (!a->known || !b->known)
		return a->known == b->known;
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

bool
tl_value_same(Datum a, Datum b, int16 len, bool byval)
{
	struct varlena *va;
	struct varlena *vb;

	if (len != -1)
		return datumIsEqual(a, b, byval, len);
	va = PG_DETOAST_DATUM_PACKED(a);
	vb = PG_DETOAST_DATUM_PACKED(b);
	return VARSIZE_ANY_EXHDR(va) == VARSIZE_ANY_EXHDR(vb) &&
		memcmp(VARDATA_ANY(va), VARDATA_ANY(vb), VARSIZE_ANY_EXHDR(va)) == 0;
}

uint32
tl_value_hash(Datum value, int16 len, bool byval)
{
	struct varlena *v;

	if (byval)
		return hash_bytes((unsigned char *) &value, sizeof(Datum));
	if (len >= 0)
		return hash_bytes((unsigned char *) DatumGetPointer(value), len);
	v = PG_DETOAST_DATUM_PACKED(value);
	return hash_bytes((unsigned char *) VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v));
}

void
tl_range_widen(TlRange *range, const TlRange *more, const TlKeyType *type)
{
	if (!tl_range_known(range) || !tl_range_known(more))
	{
		tl_range_forget(range);
		return;
	}
	if (tl_point_compare(&more->lo, &range->lo, type) < 0)
		range->lo = more->lo;
	if (tl_point_compare(&more->hi, &range->hi, type) > 0)
		range->hi = more->hi;
}

void
tl_range_forget(TlRange *range)
{
	range->lo.known = false;
	range->hi.known = false;
}
