/*-------------------------------------------------------------------------
 *
 * page.c
 *	  The pages on which tokenlock keeps what outlives the server's memory.
 *
 * They are further blocks of the sequence tokenlock_lease.  The server reads
 * and writes only the first block of a sequence, and a scan of it finds heap
 * pages without any rows in ours: what we keep lies behind pd_upper.  Block 1
 * has the reservation, the blocks from 2 on have records of long leases.
 *
 * They are changed in place by generic WAL, which the server replays by
 * itself, also where the library is not loaded.  No transaction id is needed,
 * nothing is undone by a rollback, and it works in read-only transactions.
 *
 * Each page bears the oid of its database, as CREATE DATABASE copies the pages
 * of its template: what is on those is none of the new database's business.
 *
 * A page that was added when the server crashed may be all zeros.  It counts
 * as one without content, and is initialised when it is next written.
 *
 * Locks: the buffer's, one at a time; when the sequence is extended, the
 * server's lock for that.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "compat.h"
#include "miscadmin.h"
#include "page.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#define TL_RESERVATION_BLOCK	1
#define TL_FIRST_RECORD_BLOCK	2

/* Tells our pages, and their layout. */
#define TL_PAGE_MAGIC		UINT64CONST(0x746f6b656e6c6b31)

/* What a page of ours begins with, behind the header of every page. */
typedef struct TlPageHead
{
	uint64		magic;
	Oid			database;
	uint32		unused;
} TlPageHead;

#define TL_CONTENT_OFFSET \
	(MAXALIGN(SizeOfPageHeaderData) + MAXALIGN(sizeof(TlPageHead)))
#define TL_RECORDS_PER_PAGE \
	((int) ((BLCKSZ - TL_CONTENT_OFFSET) / MAXALIGN(sizeof(TlRecord))))

#define page_head(page) \
	((TlPageHead *) ((char *) (page) + MAXALIGN(SizeOfPageHeaderData)))
#define page_content(page)	((char *) (page) + TL_CONTENT_OFFSET)

#define record_block(slot) \
	((BlockNumber) (TL_FIRST_RECORD_BLOCK + (slot) / TL_RECORDS_PER_PAGE))
#define record_offset(slot) \
	((Size) ((slot) % TL_RECORDS_PER_PAGE) * MAXALIGN(sizeof(TlRecord)))

Relation
tl_page_open(const char *sequence, int lockmode)
{
	Oid			extension = get_extension_oid("tokenlock", false);
	Oid			oid = get_relname_relid(sequence,
										tl_extension_schema(extension));

	if (!OidIsValid(oid) || get_rel_relkind(oid) != RELKIND_SEQUENCE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sequence \"%s\" of extension \"tokenlock\" is missing",
						sequence),
				 errhint("Drop and create the extension again.")));
	return relation_open(oid, lockmode);
}

/* Is there anything of this database on the page? */
static bool
is_ours(Page page)
{
	return !PageIsNew(page) && page_head(page)->magic == TL_PAGE_MAGIC &&
		page_head(page)->database == MyDatabaseId;
}

/* Copy something off a page; false when the page is not there. */
static bool
read_content(Relation sequence, BlockNumber block, Size offset,
			 void *content, Size size)
{
	Buffer		buffer;
	bool		ours;

	if (block >= RelationGetNumberOfBlocks(sequence))
		return false;
	buffer = ReadBuffer(sequence, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	ours = is_ours(BufferGetPage(buffer));
	if (ours)
		memcpy(content, page_content(BufferGetPage(buffer)) + offset, size);
	UnlockReleaseBuffer(buffer);
	return ours;
}

/* Make sure that there is such a block. */
static void
extend(Relation sequence, BlockNumber block)
{
	if (likely(block < RelationGetNumberOfBlocks(sequence)))
		return;
	LockRelationForExtension(sequence, ExclusiveLock);
	while (RelationGetNumberOfBlocks(sequence) <= block)
		ReleaseBuffer(ReadBuffer(sequence, P_NEW));
	UnlockRelationForExtension(sequence, ExclusiveLock);
}

/* A page of ours that has no content yet. */
static void
init_page(Page page)
{
	PageInit(page, BLCKSZ, 0);
	/* all of it is content, and none of it items */
	((PageHeader) page)->pd_upper = ((PageHeader) page)->pd_lower;
	memset((char *) page + SizeOfPageHeaderData, 0,
		   BLCKSZ - SizeOfPageHeaderData);
	page_head(page)->magic = TL_PAGE_MAGIC;
	page_head(page)->database = MyDatabaseId;
}

/* Change something on a page; returns the end of its WAL. */
static XLogRecPtr
write_content(Relation sequence, BlockNumber block, Size offset,
			  const void *content, Size size)
{
	GenericXLogState *state;
	XLogRecPtr	lsn;
	Buffer		buffer;
	Page		page;
	bool		fresh;

	extend(sequence, block);
	state = GenericXLogStart(sequence);
	buffer = ReadBuffer(sequence, block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	fresh = !is_ours(BufferGetPage(buffer));
	page = GenericXLogRegisterBuffer(state, buffer,
									 fresh ? GENERIC_XLOG_FULL_IMAGE : 0);
	if (fresh)
		init_page(page);
	memcpy(page_content(page) + offset, content, size);
	lsn = GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
	return lsn;
}

bool
tl_page_read_reservation(Relation sequence, TlReservation *reservation)
{
	return read_content(sequence, TL_RESERVATION_BLOCK, 0, reservation,
						sizeof(TlReservation));
}

XLogRecPtr
tl_page_write_reservation(Relation sequence, const TlReservation *reservation)
{
	return write_content(sequence, TL_RESERVATION_BLOCK, 0, reservation,
						 sizeof(TlReservation));
}

int
tl_page_records(Relation sequence)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(sequence);

	if (blocks <= TL_FIRST_RECORD_BLOCK)
		return 0;
	return Min((int64) (blocks - TL_FIRST_RECORD_BLOCK) * TL_RECORDS_PER_PAGE,
			   TL_RECORDS_MAX);
}

bool
tl_page_read_record(Relation sequence, int slot, TlRecord *record)
{
	return read_content(sequence, record_block(slot), record_offset(slot),
						record, sizeof(TlRecord)) &&
		record->fence != 0;
}

XLogRecPtr
tl_page_write_record(Relation sequence, int slot, const TlRecord *record)
{
	static const TlRecord empty = {0};

	Assert(slot >= 0 && slot < TL_RECORDS_MAX);
	return write_content(sequence, record_block(slot), record_offset(slot),
						 record ? record : &empty, sizeof(TlRecord));
}
