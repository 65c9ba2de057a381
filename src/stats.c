/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counting what happens to tokens.
 *
 * A get and put take less than a microsecond, so counting must cost next to
 * nothing and touch no memory that other sessions write to.  Each session
 * counts its totals in a slot of its own in shared memory, which anybody may
 * read: they are always up to date.
 *
 * Counts by name are gathered in a few local buckets and added to a shared
 * table at the end of the transaction.  The table has room for the busiest
 * names only.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "database.h"
#include "miscadmin.h"
#include "stats.h"

/* One session's totals.  Written by that session alone. */
typedef struct TlSlot
{
	Oid			database;		/* InvalidOid: not in use */
	uint64		totals[TL_EVENT_COUNT];
} TlSlot;

StaticAssertDecl(sizeof(TlSlot) <= TL_SLOT_WAITER, "a slot is too small");

/* What was counted for one name, and not yet published. */
typedef struct TlBucket
{
	bool		used;
	TlKey		key;
	uint64		counts[TL_EVENT_COUNT];
	TlTime		longest_wait;
	TlTime		longest_hold;
} TlBucket;

#define TL_BUCKETS	16

/* A transaction goes through many names when a bucket changed hands so often. */
#define TL_MANY_NAMES	50

/* How many names the shared table may have: about a hundredth of memory. */
#define max_names()	Min(Max(tl_memory / 64, 32), 2000)

#define names_table()	tl_shmem_table(TL_TABLE_NAMES)

static TlSlot *slot = NULL;
static TlBucket buckets[TL_BUCKETS];
static int	used_buckets = 0;
static int	evictions = 0;		/* in this transaction */

static void publish_bucket(TlBucket *bucket, bool only_known);
static void drop_least_used(void);

void
tl_stats_init(void)
{
	tl_shmem_define_table(TL_TABLE_NAMES, sizeof(TlNameStats), NULL);
	tl_shmem_keep_back(TL_TABLE_NAMES, max_names());
}

void
tl_stats_begin(void)
{
	(void) tl_database();		/* must be there when the session ends */
	slot = tl_shmem_slot(tl_my_procno());
	memset(slot->totals, 0, sizeof(slot->totals));
	slot->database = MyDatabaseId;
}

/* The session ends: its totals go to the database's. */
void
tl_stats_end(void)
{
	TlDatabase *database;

	tl_stats_publish(true);
	database = tl_database();
	slot->database = InvalidOid;
	for (int i = 0; i < TL_EVENT_COUNT; i++)
		pg_atomic_fetch_add_u64(&database->totals[i], slot->totals[i]);
	memset(slot->totals, 0, sizeof(slot->totals));
}

/*
 * Is this bucket in use for another name?  The hash is of the whole key, and
 * should two names ever have the same, then they share a count: that is no
 * reason to compare them at each event.
 */
static inline bool
is_others(const TlBucket *bucket, const TlKey *key)
{
	return bucket->used && (bucket->key.hash != key->hash ||
							bucket->key.len != key->len);
}

/*
 * A transaction that goes through many names, each of them once and without
 * meeting anybody, need not push the busy ones out of the table.
 */
static bool
is_of_interest(const TlBucket *bucket)
{
	return bucket->counts[TL_EVENT_GET] > 1 ||
		bucket->counts[TL_EVENT_REFUSAL] > 0 ||
		bucket->counts[TL_EVENT_WAIT] > 0 ||
		bucket->counts[TL_EVENT_BREAK] > 0;
}

static void
discard_bucket(TlBucket *bucket)
{
	bucket->used = false;
	used_buckets--;
}

void
tl_stats_prepare(const TlKey *key)
{
	TlBucket   *bucket = &buckets[key->hash % TL_BUCKETS];

	if (!is_others(bucket, key))
		return;
	if (evictions++ < TL_MANY_NAMES || is_of_interest(bucket))
		publish_bucket(bucket, false);
	else
		discard_bucket(bucket);
}

/* The bucket for a name, or NULL when it is taken by another. */
static TlBucket *
bucket_for(const TlKey *key)
{
	TlBucket   *bucket = &buckets[key->hash % TL_BUCKETS];

	if (is_others(bucket, key))
		return NULL;
	if (bucket->used)
		return bucket;
	memset(bucket, 0, sizeof(TlBucket));
	bucket->used = true;
	bucket->key = *key;
	used_buckets++;
	return bucket;
}

void
tl_stats_count(const TlKey *key, TlEvent event, uint64 amount)
{
	TlBucket   *bucket = bucket_for(key);

	slot->totals[event] += amount;
	if (bucket)
		bucket->counts[event] += amount;
}

void
tl_stats_waited(const TlKey *key, TlTime time)
{
	TlBucket   *bucket = bucket_for(key);

	slot->totals[TL_EVENT_WAIT]++;
	slot->totals[TL_EVENT_WAIT_TIME] += time;
	if (bucket)
	{
		bucket->counts[TL_EVENT_WAIT]++;
		bucket->counts[TL_EVENT_WAIT_TIME] += time;
		bucket->longest_wait = Max(bucket->longest_wait, time);
	}
}

void
tl_stats_ended(const TlKey *key, TlEvent how, TlTime held)
{
	TlBucket   *bucket = bucket_for(key);

	slot->totals[how]++;
	if (bucket)
	{
		bucket->counts[how]++;
		bucket->longest_hold = Max(bucket->longest_hold, held);
	}
}

void
tl_stats_publish(bool only_known)
{
	if (used_buckets == 0)
		return;
	evictions = 0;
	for (int i = 0; i < TL_BUCKETS; i++)
		if (buckets[i].used)
			publish_bucket(&buckets[i], only_known);
}

static void
publish_bucket(TlBucket *bucket, bool only_known)
{
	TlNameStats *name = dshash_find(names_table(), &bucket->key, true);

	if (!name)
	{
		bool		found;

		/* it waits for the next transaction's end */
		if (only_known)
			return;
		drop_least_used();
		if (tl_shmem_has_room(TL_TABLE_NAMES))
		{
			name = dshash_find_or_insert(names_table(), &bucket->key, &found);
			if (!found)
			{
				tl_shmem_count_entry(TL_TABLE_NAMES, 1);
				memset((char *) name + sizeof(TlKey), 0,
					   sizeof(TlNameStats) - sizeof(TlKey));
			}
		}
	}
	discard_bucket(bucket);
	if (!name)
		return;

	for (int i = 0; i < TL_EVENT_COUNT; i++)
		name->counts[i] += bucket->counts[i];
	name->usage += bucket->counts[TL_EVENT_GET];
	name->longest_wait = Max(name->longest_wait, bucket->longest_wait);
	name->longest_hold = Max(name->longest_hold, bucket->longest_hold);
	dshash_release_lock(names_table(), name);
}

/*
 * Make room in the table when it is full, as pg_stat_statements does: age all
 * names, and drop those that have not been used for long or never much.
 */
static void
drop_least_used(void)
{
	int			limit = max_names();

	while (tl_shmem_entries(TL_TABLE_NAMES) >= limit)
	{
		int			kept = 0;
		dshash_seq_status status;
		TlNameStats *name;

		dshash_seq_init(&status, names_table(), true);
		while ((name = dshash_seq_next(&status)) != NULL)
		{
			name->usage /= 2;
			if (name->usage == 0 || kept >= limit - limit / 16)
			{
				dshash_delete_current(&status);
				tl_shmem_count_entry(TL_TABLE_NAMES, -1);
			}
			else
				kept++;
		}
		dshash_seq_term(&status);
	}
}

void
tl_stats_read(uint64 *totals)
{
	TlDatabase *database = tl_database();

	for (int i = 0; i < TL_EVENT_COUNT; i++)
		totals[i] = pg_atomic_read_u64(&database->totals[i]);
	for (int procno = 0; procno < tl_shmem_slots(); procno++)
	{
		TlSlot	   *other = tl_shmem_slot(procno);

		if (other->database != MyDatabaseId)
			continue;
		for (int i = 0; i < TL_EVENT_COUNT; i++)
			totals[i] += other->totals[i];
	}
}

TlNameStats *
tl_stats_names(int *n)
{
	int			allocated;
	TlNameStats *names;
	TlNameStats *name;
	dshash_seq_status status;

	/* with what this transaction has done so far */
	tl_stats_publish(false);
	allocated = tl_shmem_entries(TL_TABLE_NAMES) + 64;
	names = palloc(allocated * sizeof(TlNameStats));
	*n = 0;
	dshash_seq_init(&status, names_table(), false);
	while ((name = dshash_seq_next(&status)) != NULL)
		if (name->key.database == MyDatabaseId && *n < allocated)
			names[(*n)++] = *name;
	dshash_seq_term(&status);
	return names;
}

void
tl_stats_purge(Oid database)
{
	dshash_seq_status status;
	TlNameStats *name;

	dshash_seq_init(&status, names_table(), true);
	while ((name = dshash_seq_next(&status)) != NULL)
	{
		if (name->key.database == database)
		{
			dshash_delete_current(&status);
			tl_shmem_count_entry(TL_TABLE_NAMES, -1);
		}
	}
	dshash_seq_term(&status);
}
