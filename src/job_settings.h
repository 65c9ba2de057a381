/*-------------------------------------------------------------------------
 *
 * job_settings.h
 *	  What owners of job tables have set with job_table_set.
 *
 * Copyright (c) 2026, the tokenlock authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TOKENLOCK_JOB_SETTINGS_H
#define TOKENLOCK_JOB_SETTINGS_H

#include "tokenlock.h"

#include "nodes/pg_list.h"

/*
 * The settings, in the order in which the table tokenlock_job_settings has
 * them behind job_table, and job_table_set its arguments.
 */
typedef enum TlJobSetting
{
	TL_SET_ID_COLUMN,
	TL_SET_STATUS_COLUMN,
	TL_SET_SID_COLUMN,
	TL_SET_READY_STATUS,
	TL_SET_CLAIMED_STATUS,
	TL_SET_DONE_STATUS,
	TL_SET_FAILED_STATUS,
	TL_SET_ORDER_BY,
	TL_SET_READY_WHEN,
	TL_SET_RUN_AT_COLUMN,
	TL_SET_ATTEMPTS_COLUMN,
	TL_SET_MAX_ATTEMPTS,
	TL_SET_ERROR_COLUMN,
	TL_SET_KEY_COLUMN,
	TL_SET_TTL,
	TL_SET_WAKE,
	TL_SET_PAUSED
} TlJobSetting;

#define TL_SET_COUNT	(TL_SET_PAUSED + 1)

/* Those of one table; null is what was not set. */
typedef struct TlJobSettings
{
	Datum		values[TL_SET_COUNT];
	bool		isnull[TL_SET_COUNT];
} TlJobSettings;

/* The names of the settings. */
extern const char *const tl_setting_names[TL_SET_COUNT];

/* Read the settings of a table, into the current memory context. */
extern void tl_settings_read(Oid relation, TlJobSettings *settings);

/* A setting of type text; NULL when it is not set. */
extern char *tl_setting_text(const TlJobSettings *settings,
							 TlJobSetting which);

/* The ttl; 0 when it is not set. */
extern TlTime tl_setting_ttl(const TlJobSettings *settings);

/* Replace the settings of a table; NULL takes them all away. */
extern void tl_settings_write(Oid relation, const TlJobSettings *settings);

/* The oids of all tables that have settings. */
extern List *tl_settings_tables(void);

/* A table is being dropped: its settings go with it. */
extern void tl_settings_drop(Oid relation);

#endif							/* TOKENLOCK_JOB_SETTINGS_H */
