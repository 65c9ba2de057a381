/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  tokenlock's shared memory: one fixed area of tokenlock.memory, the hash
 *	  tables in it, and the account of what they use.
 *
 * The area is a DSA area created in place in the main shared memory segment
 * and limited to its own size, so that it never makes a dynamic segment:
 * those would have to be mapped at first touch, which can fail, and callbacks
 * at the end of a transaction or a process must not fail.  Pages of it that
 * were never used cost nothing.
 *
 * We keep an account of the bytes in use and refuse what would not fit before
 * dshash is called, because dshash allocates with its partition lock held and
 * knows no answer to a full area but an error.  TL_RESERVE is kept back for
 * what the account does not see: the bucket arrays of a growing hash table
 * and blocks of the allocator that are only partly used.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "common/hashfn.h"
#include "compat.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "shmem.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

/*
 * Kept back: an eighth for bucket arrays, which take up to 3 * 8 bytes for
 * 3/4 of an entry while one is being doubled, and some superblocks of 64 kB
 * for the allocator's size classes.
 */
#define TL_RESERVE(size)	((size) / 8 + 8 * 65536)

/* What waits for these locks are called in pg_stat_activity. */
#define TL_TABLE_TRANCHE	"TokenlockTable"
#define TL_MEMORY_TRANCHE	"TokenlockMemory"

/* Of the account: beside an entry stands the list link and hash of dshash. */
#define TL_ENTRY_HEADER		16

/*
 * TlShared: the root of everything shared.  Written by the postmaster at
 * startup and constant from then on, but for the atomic counters.
 */
typedef struct TlShared
{
	int			table_tranche;	/* of the hash tables' partition locks */
	int			memory_tranche; /* of the area's own locks */
	dshash_table_handle tables[TL_TABLE_COUNT];
	Size		limit;			/* bytes that the account may reach */
	pg_atomic_uint64 used;		/* bytes in use, by our account */
	pg_atomic_uint32 entries[TL_TABLE_COUNT];
	pg_atomic_uint64 serial;	/* last number of tl_shmem_next_serial */
	pg_atomic_uint64 first_expiry;	/* TlTime; no lease ends before it */
	TlTime		started;		/* when this memory was made */
	pg_atomic_uint64 recovered; /* TlTime; when recovery had ended; 0: unknown */
} TlShared;

/* The slots of the processes follow the root, and then comes the area. */
#define TL_SLOTS_OFFSET	CACHELINEALIGN(sizeof(TlShared))
#define TL_AREA_OFFSET	(TL_SLOTS_OFFSET + (Size) MaxBackends * TL_SLOT_SIZE)
#define tl_area_place()	((char *) shared + TL_AREA_OFFSET)

/* Set in the postmaster and inherited, or per process where there is no fork. */
static TlShared *shared = NULL;

/* This backend's handles; NULL until tl_shmem_attach. */
static dsa_area *area = NULL;
static char *area_start = NULL; /* what a dsa_pointer counts from */
static dshash_table *tables[TL_TABLE_COUNT];

/* Called by the postmaster when the memory is new; NULL: nothing is. */
static void (*on_start) (void) = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* What tl_shmem_define_table was told; the same in every process. */
static struct
{
	Size		entry_size;
	TlSweepFunction sweep;
	int			kept_back;		/* entries that are not accounted for */
}			definitions[TL_TABLE_COUNT];

static void tl_shmem_request(void);
static void tl_shmem_startup(void);
static void tl_shmem_detach(int code, Datum arg);
static Size entry_account(TlTableId id);
static void table_parameters(TlTableId id, dshash_parameters *parameters);
static int	compare_keys(const void *a, const void *b, size_t size, void *arg);
static dshash_hash hash_key(const void *key, size_t size, void *arg);
static void sweep(void);
tl_noreturn static void error_full(void);

void
tl_shmem_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = tl_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = tl_shmem_startup;
}

void
tl_shmem_define_table(TlTableId id, Size entry_size, TlSweepFunction sweep)
{
	definitions[id].entry_size = entry_size;
	definitions[id].sweep = sweep;
}

void
tl_shmem_keep_back(TlTableId id, int entries)
{
	definitions[id].kept_back = entries;
}

static Size
area_size(void)
{
	return mul_size(tl_memory, 1024);
}

static void
tl_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(TL_AREA_OFFSET, area_size()));
}

/*
 * Create the area and its tables.  The postmaster runs this again after a
 * crash, with fresh memory; where there is no fork every child runs it and
 * finds what is there.
 */
static void
tl_shmem_startup(void)
{
	dsa_area   *new_area;
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	area = NULL;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("tokenlock",
							 add_size(TL_AREA_OFFSET, area_size()), &found);
	if (!found)
	{
		memset(shared, 0, TL_AREA_OFFSET);
		shared->table_tranche = tl_new_tranche(TL_TABLE_TRANCHE);
		shared->memory_tranche = tl_new_tranche(TL_MEMORY_TRANCHE);
		shared->limit = area_size() - TL_RESERVE(area_size());
		for (int i = 0; i < TL_TABLE_COUNT; i++)
			shared->limit -= definitions[i].kept_back * entry_account(i);
		pg_atomic_init_u64(&shared->used, 0);
		for (int i = 0; i < TL_TABLE_COUNT; i++)
			pg_atomic_init_u32(&shared->entries[i], 0);
		pg_atomic_init_u64(&shared->serial, 0);
		pg_atomic_init_u64(&shared->first_expiry, TL_NEVER);
		shared->started = tl_now();
		pg_atomic_init_u64(&shared->recovered, 0);

		new_area = dsa_create_in_place(tl_area_place(), area_size(),
									   shared->memory_tranche, NULL);
		dsa_pin(new_area);
		dsa_set_size_limit(new_area, area_size());
		for (int i = 0; i < TL_TABLE_COUNT; i++)
		{
			dshash_parameters parameters;
			dshash_table *table;

			table_parameters(i, &parameters);
			table = dshash_create(new_area, &parameters, NULL);
			shared->tables[i] = dshash_get_hash_table_handle(table);
			dshash_detach(table);
		}
		/* leave nothing attached here: children would inherit it */
		dsa_detach(new_area);
	}
	LWLockRelease(AddinShmemInitLock);
	if (!found && !IsUnderPostmaster && on_start)
		on_start();
}

/* Set this process's handles. */
static void
attach(void)
{
	area = dsa_attach_in_place(tl_area_place(), NULL);
	/* all of it is one segment, so one known address tells the others */
	area_start = (char *) dsa_get_address(area, shared->tables[0]) -
		shared->tables[0];
	for (int i = 0; i < TL_TABLE_COUNT; i++)
	{
		dshash_parameters parameters;

		table_parameters(i, &parameters);
		tables[i] = dshash_attach(area, &parameters, shared->tables[i], NULL);
	}
}

void
tl_shmem_on_start(void (*function) (void))
{
	on_start = function;
}

void
tl_shmem_attach_postmaster(void)
{
	Assert(!IsUnderPostmaster && area == NULL);
	attach();
}

void
tl_shmem_detach_postmaster(void)
{
	/* children must not inherit anything of it */
	for (int i = 0; i < TL_TABLE_COUNT; i++)
		dshash_detach(tables[i]);
	dsa_detach(area);
	dsa_release_in_place(tl_area_place());
	area = NULL;
}

bool
tl_shmem_is_there(void)
{
	return shared != NULL;
}

void
tl_shmem_attach(void)
{
	MemoryContext oldcontext;

	if (likely(area != NULL))
		return;
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tokenlock is not preloaded"),
				 errhint("Add tokenlock to shared_preload_libraries and restart the server.")));

	tl_name_tranche(shared->table_tranche, TL_TABLE_TRANCHE);
	tl_name_tranche(shared->memory_tranche, TL_MEMORY_TRANCHE);

	oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	attach();
	dsa_pin_mapping(area);
	MemoryContextSwitchTo(oldcontext);

	/*
	 * An area in place counts the backends that attached to it, and nobody
	 * else takes us off that count.  Late, because the transaction's abort
	 * and our callback there come after all of before_shmem_exit.
	 */
	on_shmem_exit(tl_shmem_detach, 0);
}

static void
tl_shmem_detach(int code, Datum arg)
{
	dsa_release_in_place(tl_area_place());
}

static void
table_parameters(TlTableId id, dshash_parameters *parameters)
{
	memset(parameters, 0, sizeof(*parameters));
	parameters->key_size = sizeof(TlKey);
	parameters->entry_size = definitions[id].entry_size;
	parameters->compare_function = compare_keys;
	parameters->hash_function = hash_key;
	parameters->tranche_id = shared->table_tranche;
	tl_dshash_copies_keys(parameters);
}

static int
compare_keys(const void *a, const void *b, size_t size, void *arg)
{
	return tl_key_compare(a, b, size);
}

static dshash_hash
hash_key(const void *key, size_t size, void *arg)
{
	return tl_key_hash(key, size);
}

/*
 * Account for a block of the allocator, whose size classes lie a quarter of
 * a power of two apart.
 */
static Size
accounted(Size size)
{
	Size		step;

	if (size <= 32)
		return MAXALIGN(size);
	step = ((Size) 1 << pg_leftmost_one_pos64(size - 1)) / 4;
	return TYPEALIGN(step, size);
}

static Size
entry_account(TlTableId id)
{
	return accounted(definitions[id].entry_size + TL_ENTRY_HEADER);
}

/* Has the allocator that much in one piece?  Try it out. */
static bool
can_allocate(Size size)
{
	dsa_pointer probe = dsa_allocate_extended(area, size, DSA_ALLOC_NO_OOM);

	if (!DsaPointerIsValid(probe))
		return false;
	dsa_free(area, probe);
	return true;
}

/*
 * Can the area take this much more?  Close to the limit the account alone is
 * not enough, as free space may lie in blocks of other sizes.
 */
static bool
has_room(Size size)
{
	uint64		used = pg_atomic_read_u64(&shared->used);

	if (used + accounted(size) > shared->limit)
		return false;
	return likely(used < shared->limit - shared->limit / 16) ||
		can_allocate(size);
}

bool
tl_shmem_has_room(TlTableId id)
{
	Size		size = definitions[id].entry_size + TL_ENTRY_HEADER;

	return definitions[id].kept_back > 0 ? can_allocate(size) : has_room(size);
}

void
tl_shmem_make_room(TlTableId id)
{
	if (likely(tl_shmem_has_room(id)))
		return;
	sweep();
	if (!tl_shmem_has_room(id))
		error_full();
}

static void
sweep(void)
{
	for (int i = 0; i < TL_TABLE_COUNT; i++)
		if (definitions[i].sweep)
			definitions[i].sweep();
}

void
tl_shmem_count_entry(TlTableId id, int change)
{
	if (definitions[id].kept_back == 0)
		pg_atomic_fetch_add_u64(&shared->used,
								(int64) entry_account(id) * change);
	pg_atomic_fetch_add_u32(&shared->entries[id], change);
}

int
tl_shmem_entries(TlTableId id)
{
	return pg_atomic_read_u32(&shared->entries[id]);
}

dsa_pointer
tl_shmem_alloc_or_error(Size size)
{
	dsa_pointer pointer = tl_shmem_alloc(size);

	if (unlikely(!DsaPointerIsValid(pointer)))
	{
		sweep();
		pointer = tl_shmem_alloc(size);
		if (!DsaPointerIsValid(pointer))
			error_full();
	}
	return pointer;
}

dsa_pointer
tl_shmem_alloc(Size size)
{
	dsa_pointer pointer;

	if (pg_atomic_read_u64(&shared->used) + accounted(size) > shared->limit)
		return InvalidDsaPointer;
	pointer = dsa_allocate_extended(area, size, DSA_ALLOC_NO_OOM);
	if (DsaPointerIsValid(pointer))
		pg_atomic_fetch_add_u64(&shared->used, accounted(size));
	return pointer;
}

void
tl_shmem_free(dsa_pointer pointer, Size size)
{
	dsa_free(area, pointer);
	pg_atomic_fetch_sub_u64(&shared->used, accounted(size));
}

void *
tl_shmem_address(dsa_pointer pointer)
{
	Assert(dsa_get_address(area, pointer) == area_start + pointer);
	return area_start + pointer;
}

Size
tl_shmem_used(void)
{
	return pg_atomic_read_u64(&shared->used);
}

Size
tl_shmem_limit(void)
{
	return shared->limit;
}

void *
tl_shmem_slot(int procno)
{
	Assert(procno < MaxBackends);
	return (char *) shared + TL_SLOTS_OFFSET + (Size) procno * TL_SLOT_SIZE;
}

int
tl_shmem_slots(void)
{
	return MaxBackends;
}

static void
error_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("tokenlock is out of shared memory"),
			 errdetail("All of the %d kB of \"tokenlock.memory\" is in use by held tokens, waiters and workers.",
					   tl_memory),
			 errhint("Give back tokens that are no longer needed, or raise \"tokenlock.memory\" and restart the server.")));
}

dshash_table *
tl_shmem_table(TlTableId id)
{
	Assert(area != NULL);
	return tables[id];
}

uint64
tl_shmem_next_serial(void)
{
	return pg_atomic_add_fetch_u64(&shared->serial, 1);
}

TlTime
tl_shmem_started(void)
{
	return shared->started;
}

void
tl_shmem_note_recovered(void)
{
	pg_atomic_write_u64(&shared->recovered, tl_now());
}

TlTime
tl_shmem_recovered(void)
{
	return (TlTime) pg_atomic_read_u64(&shared->recovered);
}

void
tl_shmem_expiry_note(TlTime expires)
{
	uint64		first = pg_atomic_read_u64(&shared->first_expiry);

	while ((uint64) expires < first)
		if (pg_atomic_compare_exchange_u64(&shared->first_expiry, &first,
										   expires))
			break;
}

bool
tl_shmem_expiry_begin_sweep(TlTime now)
{
	if (pg_atomic_read_u64(&shared->first_expiry) > (uint64) now)
		return false;
	pg_atomic_write_u64(&shared->first_expiry, TL_NEVER);
	return true;
}

/* The part of a key that counts; nothing looks at what the name leaves over. */
static inline Size
used_size(const TlKey *key)
{
	return offsetof(TlKey, name) + key->len;
}

void
tl_key_init(TlKey *key, Oid relation, const char *name, int len)
{
	tl_key_init_in(key, MyDatabaseId, relation, name, len);
}

void
tl_key_init_in(TlKey *key, Oid database, Oid relation, const char *name,
			   int len)
{
	static TlKey latest;		/* the same is often asked for again */

	Assert(len <= TL_NAME_MAX);
	key->database = database;
	key->relation = relation;
	key->len = len;
	memcpy(key->name, name, len);
	/* once for all the tables that the key is looked up in */
	if (latest.len == len && latest.relation == relation &&
		latest.database == database &&
		memcmp(latest.name, name, len) == 0)
		key->hash = latest.hash;
	else
	{
		key->hash = hash_bytes((const unsigned char *) &key->database,
							   used_size(key) - offsetof(TlKey, database));
		memcpy(&latest, key, used_size(key));
	}
}

uint32
tl_key_hash(const void *key, Size size)
{
	return ((const TlKey *) key)->hash;
}

int
tl_key_compare(const void *a, const void *b, Size size)
{
	/* the length is in the part that is compared */
	return memcmp(a, b, used_size(a));
}
