/* sql/tokenlock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION tokenlock" to load this file. \quit

--
-- Durable state
--

/*
 * The first fence number of this database that is not reserved yet.  The
 * server changes it in place, a block of numbers at a time; nobody else has
 * any business with it.  But pg_dump carries it along, so that fences go on
 * growing in the restored database; so whoever dumps must be able to read it,
 * and the owner of the restored database to set it.
 */
CREATE SEQUENCE tokenlock_fence AS bigint;

REVOKE ALL ON SEQUENCE tokenlock_fence FROM PUBLIC;
GRANT SELECT ON SEQUENCE tokenlock_fence TO PUBLIC;
GRANT UPDATE ON SEQUENCE tokenlock_fence TO pg_database_owner;

COMMENT ON SEQUENCE tokenlock_fence IS
'first fence number that is not reserved yet; maintained by the server, do not touch';

SELECT pg_catalog.pg_extension_config_dump('tokenlock_fence', '');

/*
 * Its pages hold what leases outlive a crash by.  A dump does not carry them:
 * nobody holds anything in a restored database.
 */
CREATE SEQUENCE tokenlock_lease AS bigint;

REVOKE ALL ON SEQUENCE tokenlock_lease FROM PUBLIC;

COMMENT ON SEQUENCE tokenlock_lease IS
'leases that outlive a crash; maintained by the server, do not touch';

--
-- Tokens
--
-- All functions are VOLATILE and, where they take, change or give back
-- something, PARALLEL UNSAFE: a parallel worker shares its leader's
-- heavyweight locks and could not tell its own holds from the leader's.
-- They are not STRICT: NULL means "without end" for a wait and "the default"
-- for a ttl or an owner, and an error where a value is needed.
--

CREATE FUNCTION token_get(
    name text,
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    capacity bigint DEFAULT 1,
    shared boolean DEFAULT false,
    scope text DEFAULT 'session',
    keep_place interval DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_get';

COMMENT ON FUNCTION token_get(text, interval, interval, text, bigint, boolean, text, interval) IS
'take a named token, or learn that somebody else has it';

CREATE FUNCTION token_request(
    name text,
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    capacity bigint DEFAULT 1,
    shared boolean DEFAULT false,
    scope text DEFAULT 'session',
    keep_place interval DEFAULT NULL,
    OUT granted boolean,
    OUT fence bigint,
    OUT expires_at timestamptz,
    OUT answer text,
    OUT place bigint)
RETURNS record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_request';

COMMENT ON FUNCTION token_request(text, interval, interval, text, bigint, boolean, text, interval) IS
'take a named token as token_get does, and return the fence, the end of the lease and what happened';

CREATE FUNCTION token_put(
    name text,
    owner text DEFAULT NULL,
    fence bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_put';

COMMENT ON FUNCTION token_put(text, text, bigint) IS
'give a token back; false when this owner did not hold it';

CREATE FUNCTION token_put_all(
    names text[] DEFAULT NULL,
    owner text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_put_all';

COMMENT ON FUNCTION token_put_all(text[], text) IS
'give back the listed tokens of an owner, or all of them; returns how many were given back';

CREATE FUNCTION token_renew(
    name text,
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    fence bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_renew';

COMMENT ON FUNCTION token_renew(text, interval, text, bigint) IS
'restart a lease; false when it has lapsed or is not this owner''s';

CREATE FUNCTION token_fence(
    name text,
    owner text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_fence';

COMMENT ON FUNCTION token_fence(text, text) IS
'the fence number of the grant that this owner has; NULL when it does not hold the token';

CREATE FUNCTION token_guard(
    name text,
    owner text DEFAULT NULL,
    fence bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_guard';

COMMENT ON FUNCTION token_guard(text, text, bigint) IS
'let this transaction commit only if this owner still has its present grant; returns the fence';

CREATE FUNCTION token_get_all(
    names text[],
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    scope text DEFAULT 'session')
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_get_all';

COMMENT ON FUNCTION token_get_all(text[], interval, interval, text, text) IS
'take all of these tokens, or none';

CREATE PROCEDURE token_acquire(
    name text,
    wait interval DEFAULT NULL,
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    capacity bigint DEFAULT 1,
    shared boolean DEFAULT false,
    INOUT granted boolean DEFAULT NULL,
    INOUT fence bigint DEFAULT NULL,
    INOUT expires_at timestamptz DEFAULT NULL)
LANGUAGE c
AS 'MODULE_PATHNAME', 'tokenlock_token_acquire';

COMMENT ON PROCEDURE token_acquire(text, interval, interval, text, bigint, boolean, boolean, bigint, timestamptz) IS
'take a token as token_get does, waiting without a snapshot';

CREATE FUNCTION token_break(
    name text,
    fence bigint)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_break';

COMMENT ON FUNCTION token_break(text, bigint) IS
'take a token away from whoever holds it with this fence; false when nobody does';

CREATE FUNCTION tokenlock_holders(
    OUT name text,
    OUT owner text,
    OUT role name,
    OUT pid integer,
    OUT scope text,
    OUT shared boolean,
    OUT fence bigint,
    OUT acquired_at timestamptz,
    OUT expires_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_holders';

COMMENT ON FUNCTION tokenlock_holders() IS
'rows of the view token_holders';

CREATE VIEW token_holders AS
    SELECT * FROM tokenlock_holders();

COMMENT ON VIEW token_holders IS
'who holds which token of this database at the moment';

CREATE FUNCTION tokenlock_waiters(
    OUT name text,
    OUT place bigint,
    OUT owner text,
    OUT role name,
    OUT pid integer,
    OUT waiting_since timestamptz,
    OUT deadline timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_waiters';

COMMENT ON FUNCTION tokenlock_waiters() IS
'rows of the view token_waiters';

CREATE VIEW token_waiters AS
    SELECT * FROM tokenlock_waiters();

COMMENT ON VIEW token_waiters IS
'who waits for which token of this database, in the order in which they will be served';

CREATE FUNCTION tokenlock_stats(
    OUT gets bigint,
    OUT grants bigint,
    OUT refusals bigint,
    OUT waits bigint,
    OUT wait_time interval,
    OUT timeouts bigint,
    OUT expiries bigint,
    OUT puts bigint,
    OUT breaks bigint,
    OUT entries bigint,
    OUT memory bigint,
    OUT grace_until timestamptz)
RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_stats';

COMMENT ON FUNCTION tokenlock_stats() IS
'row of the view token_stats';

CREATE VIEW token_stats AS
    SELECT * FROM tokenlock_stats();

COMMENT ON VIEW token_stats IS
'what has happened to the tokens of this database since the server started';

CREATE FUNCTION tokenlock_stats_by_name(
    OUT name text,
    OUT gets bigint,
    OUT grants bigint,
    OUT refusals bigint,
    OUT waits bigint,
    OUT wait_time interval,
    OUT timeouts bigint,
    OUT expiries bigint,
    OUT puts bigint,
    OUT breaks bigint,
    OUT longest_wait interval,
    OUT longest_hold interval)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_stats_by_name';

COMMENT ON FUNCTION tokenlock_stats_by_name() IS
'rows of the view token_stats_by_name';

CREATE VIEW token_stats_by_name AS
    SELECT * FROM tokenlock_stats_by_name();

COMMENT ON VIEW token_stats_by_name IS
'the same counters for each of the busiest names of this database';

--
-- Jobs
--

/*
 * What owners of job tables have set; null is what they have not.  Written by
 * job_table_set and job_table_reset alone, as sessions hear of changes from
 * them.  Everybody may read it, so that any role that can dump the database
 * can dump it; and the database's owner may restore it.
 */
CREATE TABLE tokenlock_job_settings (
    job_table regclass PRIMARY KEY,
    id_column text,
    status_column text,
    sid_column text,
    ready_status text,
    claimed_status text,
    done_status text,
    failed_status text,
    order_by text,
    ready_when text,
    run_at_column text,
    attempts_column text,
    max_attempts bigint,
    error_column text,
    key_column text,
    ttl interval,
    wake boolean,
    paused boolean);

GRANT SELECT ON tokenlock_job_settings TO PUBLIC;
GRANT INSERT ON tokenlock_job_settings TO pg_database_owner;

-- A dump is restored row by row; each must be of a table of one's own.
CREATE FUNCTION tokenlock_job_settings_restored()
RETURNS trigger
LANGUAGE c
AS 'MODULE_PATHNAME', 'tokenlock_job_settings_restored';

COMMENT ON FUNCTION tokenlock_job_settings_restored() IS
'trigger of tokenlock_job_settings';

CREATE TRIGGER restored
    BEFORE INSERT ON tokenlock_job_settings
    FOR EACH ROW EXECUTE FUNCTION tokenlock_job_settings_restored();

COMMENT ON TABLE tokenlock_job_settings IS
'what was set with job_table_set; do not change it otherwise';

SELECT pg_catalog.pg_extension_config_dump('tokenlock_job_settings',
    'WHERE EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = job_table AND c.relpersistence <> ''t'')');

CREATE FUNCTION job_table_set(
    job_table regclass,
    id_column text DEFAULT NULL,
    status_column text DEFAULT NULL,
    sid_column text DEFAULT NULL,
    ready_status text DEFAULT NULL,
    claimed_status text DEFAULT NULL,
    done_status text DEFAULT NULL,
    failed_status text DEFAULT NULL,
    order_by text DEFAULT NULL,
    ready_when text DEFAULT NULL,
    run_at_column text DEFAULT NULL,
    attempts_column text DEFAULT NULL,
    max_attempts bigint DEFAULT NULL,
    error_column text DEFAULT NULL,
    key_column text DEFAULT NULL,
    ttl interval DEFAULT NULL,
    wake boolean DEFAULT NULL,
    paused boolean DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_job_table_set';

COMMENT ON FUNCTION job_table_set(regclass, text, text, text, text, text, text, text, text, text, text, text, bigint, text, text, interval, boolean, boolean) IS
'say how a job table is to be read; null leaves a setting as it is';

CREATE FUNCTION job_table_reset(
    job_table regclass,
    setting text DEFAULT NULL)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_job_table_reset';

COMMENT ON FUNCTION job_table_reset(regclass, text) IS
'take a setting of a job table back to its default; without a name, all of them';

CREATE FUNCTION claim_jobs(
    job anyelement,
    sid text,
    batch bigint DEFAULT 1,
    done anycompatiblearray DEFAULT '{}'::text[],
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    resume boolean DEFAULT true)
RETURNS SETOF anyelement
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10
AS 'MODULE_PATHNAME', 'tokenlock_claim_jobs';

COMMENT ON FUNCTION claim_jobs(anyelement, text, bigint, anycompatiblearray, interval, interval, boolean) IS
'take up to a batch of rows out of a job table for this worker: its own, a dead worker''s, then ready ones';

CREATE FUNCTION claim_jobs(
    job_table text,
    sid text,
    batch bigint DEFAULT 1,
    done anycompatiblearray DEFAULT '{}'::text[],
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    resume boolean DEFAULT true)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_claim_jobs_text';

COMMENT ON FUNCTION claim_jobs(text, text, bigint, anycompatiblearray, interval, interval, boolean) IS
'raises an error that shows the right call, claim_jobs(NULL::job_table, ...)';

CREATE FUNCTION finish_jobs(
    job_table regclass,
    sid text,
    ids anycompatiblearray)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_finish_jobs';

COMMENT ON FUNCTION finish_jobs(regclass, text, anycompatiblearray) IS
'set jobs that this worker holds to done; returns how many they were';

CREATE FUNCTION release_jobs(
    job_table regclass,
    sid text)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_release_all_jobs';

COMMENT ON FUNCTION release_jobs(regclass, text) IS
'give all jobs that this worker holds back to ready; returns how many they were';

CREATE FUNCTION release_jobs(
    job_table regclass,
    sid text,
    ids anycompatiblearray)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_release_jobs';

COMMENT ON FUNCTION release_jobs(regclass, text, anycompatiblearray) IS
'give the listed jobs back to ready, as far as this worker holds them; returns how many they were';

CREATE FUNCTION fail_jobs(
    job_table regclass,
    sid text,
    ids anycompatiblearray,
    error text DEFAULT NULL,
    retry_in interval DEFAULT NULL,
    give_up boolean DEFAULT false)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_fail_jobs';

COMMENT ON FUNCTION fail_jobs(regclass, text, anycompatiblearray, text, interval, boolean) IS
'set jobs that this worker holds to be tried again later, or to failed; returns how many they were';

CREATE FUNCTION renew_jobs(
    job_table regclass,
    sid text,
    ttl interval DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_renew_jobs';

COMMENT ON FUNCTION renew_jobs(regclass, text, interval) IS
'tell that this worker is alive; false, once, when its lease had lapsed';

CREATE FUNCTION wake_jobs(
    job_table regclass)
RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_wake_jobs';

COMMENT ON FUNCTION wake_jobs(regclass) IS
'have those who wait for jobs look again once this transaction commits';

CREATE PROCEDURE wait_jobs(
    job_table regclass,
    wait interval,
    INOUT ready boolean DEFAULT NULL)
LANGUAGE c
AS 'MODULE_PATHNAME', 'tokenlock_wait_jobs';

COMMENT ON PROCEDURE wait_jobs(regclass, interval, boolean) IS
'wait, without a snapshot, until there are jobs to be claimed';

CREATE FUNCTION tokenlock_job_wake()
RETURNS trigger
LANGUAGE c
AS 'MODULE_PATHNAME', 'tokenlock_job_wake';

COMMENT ON FUNCTION tokenlock_job_wake() IS
'trigger of job tables that were set with wake => true';

CREATE FUNCTION tokenlock_job_workers(
    OUT job_table regclass,
    OUT sid text,
    OUT claimed bigint,
    OUT since timestamptz,
    OUT renewed_at timestamptz,
    OUT expires_at timestamptz,
    OUT live boolean)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_job_workers';

COMMENT ON FUNCTION tokenlock_job_workers() IS
'rows of the view job_workers';

CREATE VIEW job_workers AS
    SELECT * FROM tokenlock_job_workers();

COMMENT ON VIEW job_workers IS
'the workers that have claimed jobs in this database, and how long they count as alive';

CREATE FUNCTION tokenlock_job_tables(
    OUT job_table regclass,
    OUT id_column text,
    OUT status_column text,
    OUT sid_column text,
    OUT ready_status text,
    OUT claimed_status text,
    OUT done_status text,
    OUT failed_status text,
    OUT order_by text,
    OUT ready_when text,
    OUT run_at_column text,
    OUT attempts_column text,
    OUT max_attempts bigint,
    OUT error_column text,
    OUT key_column text,
    OUT ttl interval,
    OUT wake boolean,
    OUT paused boolean,
    OUT claimed bigint,
    OUT finished bigint,
    OUT taken_over bigint,
    OUT handed_again bigint,
    OUT waiting bigint)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_job_tables';

COMMENT ON FUNCTION tokenlock_job_tables() IS
'rows of the view job_tables';

CREATE FUNCTION tokenlock_missing_index(job_table regclass)
RETURNS text
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_missing_index';

COMMENT ON FUNCTION tokenlock_missing_index(regclass) IS
'column missing_index of the view job_tables';

CREATE VIEW job_tables AS
    SELECT t.*, tokenlock_missing_index(t.job_table) AS missing_index
    FROM tokenlock_job_tables() t;

COMMENT ON VIEW job_tables IS
'the job tables of this database, set or in use: settings in force, and what has happened since the server started';

GRANT SELECT ON token_holders, token_waiters, token_stats, token_stats_by_name,
    job_workers, job_tables TO PUBLIC;
