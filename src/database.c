/*-------------------------------------------------------------------------
 *
 * database.c
 *	  What is shared by the sessions of one database: fence numbers, what is
 *	  promised and recovered, totals.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "database.h"
#include "miscadmin.h"
#include "record.h"

/* How many databases memory is kept back for; more of them are no harm. */
#define TL_USUAL_DATABASES	20

static TlDatabase *my_database = NULL;

void
tl_database_init(void)
{
	tl_shmem_define_table(TL_TABLE_DATABASES, sizeof(TlDatabase), NULL);
	tl_shmem_keep_back(TL_TABLE_DATABASES, TL_USUAL_DATABASES);
}

TlDatabase *
tl_database(void)
{
	if (unlikely(my_database == NULL))
		my_database = tl_database_enter(MyDatabaseId);
	return my_database;
}

/*
 * Sessions begin, and databases are dropped, while memory is full, too: these
 * entries come out of what is kept back.
 */
TlDatabase *
tl_database_enter(Oid oid)
{
	dshash_table *table = tl_shmem_table(TL_TABLE_DATABASES);
	TlDatabase *database;
	TlKey		key;
	bool		found;

	tl_key_init_in(&key, oid, InvalidOid, "", 0);
	database = dshash_find_or_insert(table, &key, &found);
	if (!found)
	{
		tl_shmem_count_entry(TL_TABLE_DATABASES, 1);
		SpinLockInit(&database->mutex);
		pg_atomic_init_u64(&database->next_fence, 0);
		pg_atomic_init_u64(&database->fence_limit, 0);
		pg_atomic_init_u32(&database->state, TL_DATABASE_UNKNOWN);
		database->restored = false;
		database->grace_until = 0;
		pg_atomic_init_u64(&database->promised, 0);
		pg_atomic_init_u64(&database->promised_until, 0);
		ConditionVariableInit(&database->record_written);
		database->slots = InvalidDsaPointer;
		for (int i = 0; i < TL_EVENT_COUNT; i++)
			pg_atomic_init_u64(&database->totals[i], 0);
	}
	dshash_release_lock(table, database);
	return database;
}

void
tl_database_purge(Oid oid)
{
	dshash_table *table = tl_shmem_table(TL_TABLE_DATABASES);
	dshash_seq_status status;
	TlDatabase *database;

	Assert(oid != MyDatabaseId);
	dshash_seq_init(&status, table, true);
	while ((database = dshash_seq_next(&status)) != NULL)
	{
		if (database->key.database == oid)
		{
			tl_record_free(database);
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_DATABASES, -1);
		}
	}
	dshash_seq_term(&status);
}
