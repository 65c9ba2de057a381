-- The order in which jobs are handed out, and when they are due: order_by,
-- run_at_column, ready_when.  P72, P84, P95, P99
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

-- P72: a batch comes in the order, under any join method.
CREATE TABLE jobs (id int PRIMARY KEY, pr int, "Weight" numeric,
    status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT i, (i * 7919) % 13, i % 3
FROM generate_series(1, 1000) i;
UPDATE jobs SET pr = pr WHERE id % 5 = 0;
SELECT job_table_set('jobs', order_by => 'pr, id');
CREATE FUNCTION pg_temp.in_order(ids int[], by text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    sorted int[];
BEGIN
    EXECUTE format('SELECT array_agg(id ORDER BY %s) FROM jobs
        WHERE id = ANY ($1)', by) INTO sorted USING ids;
    RETURN sorted = ids;
END $$;
SELECT id, pr FROM claim_jobs(NULL::jobs, 'w1', 5);
SELECT release_jobs('jobs', 'w1');
CREATE INDEX ON jobs (pr, id) WHERE status = '0';
SELECT count(*), pg_temp.in_order(array_agg(id), 'pr, id')
FROM claim_jobs(NULL::jobs, 'w1', 50);
SET enable_nestloop = off;
SELECT count(*), pg_temp.in_order(array_agg(id), 'pr, id')
FROM claim_jobs(NULL::jobs, 'w2', 50);
SET enable_hashjoin = off;
SET enable_indexscan = off;
SELECT count(*), pg_temp.in_order(array_agg(id), 'pr, id')
FROM claim_jobs(NULL::jobs, 'w3', 50);
RESET ALL;
-- All that come before the last one were handed out.
SELECT count(*) FROM jobs r, jobs c
WHERE r.status = '0' AND c.status = '2' AND (r.pr, r.id) < (c.pr, c.id);
SELECT job_table_set('jobs', ttl => '1min', order_by => NULL);
SELECT count(*), pg_temp.in_order(array_agg(id), 'pr, id')
FROM claim_jobs(NULL::jobs, 'w4', 50);
SELECT job_table_reset('jobs', 'order_by');
SELECT count(*), pg_temp.in_order(array_agg(id), 'id')
FROM claim_jobs(NULL::jobs, 'w5', 50);

-- Own rows first, in the order; then those of the dead, mixed; then others.
UPDATE jobs SET status = '0', sid = NULL;
SELECT job_table_set('jobs', order_by => '"Weight" DESC NULLS LAST, pr DESC');
SELECT count(*) FROM claim_jobs(NULL::jobs, 'd1', 3);
SELECT count(*) FROM claim_jobs(NULL::jobs, 'd2', 3, resume => false);
UPDATE jobs SET pr = 100 WHERE id = (SELECT max(id) FROM jobs WHERE sid = 'd2');
SELECT renew_jobs('jobs', s, ttl => '1 ms') FROM unnest('{d1,d2}'::text[]) s;
SELECT pg_sleep(0.01);
SELECT count(*), pg_temp.in_order(array_agg(id), '"Weight" DESC, pr DESC, id'),
    min(id) FILTER (WHERE pr = 100) = (array_agg(id))[1] AS mixed,
    (SELECT count(*) FROM jobs WHERE sid IN ('d1', 'd2')) AS before
FROM claim_jobs(NULL::jobs, 'live', 6);
SELECT count(*), pg_temp.in_order((array_agg(id))[1:6], '"Weight" DESC, pr DESC, id'),
    pg_temp.in_order((array_agg(id))[7:], '"Weight" DESC, pr DESC, id')
FROM claim_jobs(NULL::jobs, 'live', 12);

-- What comes late with a high priority is next; so is what comes back.
SELECT job_table_set('jobs', order_by => 'pr DESC, id DESC');
INSERT INTO jobs VALUES (2000, 1000), (2001, 1000);
SELECT id FROM claim_jobs(NULL::jobs, 'x', 1);
BEGIN;
SELECT id FROM claim_jobs(NULL::jobs, 'y', 1);
ROLLBACK;
SELECT release_jobs('jobs', 'x');
SELECT id FROM claim_jobs(NULL::jobs, 'z', 2);
SELECT finish_jobs('jobs', 'z', ARRAY[2000, 2001]);

-- An order that is none.
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => '')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => 'pr, color')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => 'pr + 1')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => 'pr USING <')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => '1')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => 'pr LIMIT 1')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    order_by => 'pr; DROP TABLE jobs')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', order_by => 'pr DOWN')$$);
SELECT order_by FROM job_tables WHERE job_table = 'jobs'::regclass;
ALTER TABLE jobs DROP COLUMN pr;
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'x', 1)$$);
DROP TABLE jobs;

-- P99: due means due, by the clock, for all sessions and time zones.
CREATE TABLE jobs (id int PRIMARY KEY, run_at timestamptz,
    day timestamp, status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT i, clock_timestamp() + interval '1 hour'
FROM generate_series(1, 5) i;
INSERT INTO jobs VALUES (6, NULL), (7, '-infinity'), (8, 'infinity');
SELECT pg_temp.try($$SELECT job_table_set('jobs', run_at_column => 'day')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', run_at_column => 'when')$$);
SELECT job_table_set('jobs', run_at_column => 'run_at');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5);
SET timezone = 'Pacific/Kiritimati';
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
SET timezone = 'Pacific/Pago_Pago';
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
RESET timezone;
BEGIN;
UPDATE jobs SET run_at = clock_timestamp() + interval '50 ms' WHERE id = 3;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
SELECT pg_sleep(0.06);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
COMMIT;
-- Who has a job keeps it, whatever its time; released, it waits again.
UPDATE jobs SET run_at = 'infinity' WHERE id = 3;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
SELECT release_jobs('jobs', 'w2');
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
ALTER TABLE jobs ALTER COLUMN run_at TYPE timestamp;
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5)$$);
DROP TABLE jobs;

-- A condition of the application's own.
CREATE TABLE jobs (id int PRIMARY KEY, blocked boolean DEFAULT false,
    needs int, status text DEFAULT '0', sid text);
INSERT INTO jobs VALUES (1, true, NULL), (2, false, 1),
    (3, false, 4), (4, false, NULL);
SELECT job_table_set('jobs', ready_when => 'NOT blocked AND NOT EXISTS (
    SELECT FROM public.jobs first WHERE first.id = job.needs
    AND first.status <> ''1'') -- all that it needs is done');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 9);
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[4]);
UPDATE jobs SET blocked = false;
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[3]);
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[1]);
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => '')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => 'needs')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    ready_when => 'blocked) OR (true')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    ready_when => 'blocked, true')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    ready_when => 'blocked AS x')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    ready_when => 'blocked FROM jobs')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    ready_when => 'blocked; SELECT 1')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => 'true;')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => '*')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => 'id = $1')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    ready_when => 'count(*) > 1')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => 'color')$$);

-- Its names mean the same for all, whatever their search_path.
CREATE SCHEMA tl_planted;
CREATE FUNCTION tl_planted.no(int, int) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE OPERATOR tl_planted.> (LEFTARG = int, RIGHTARG = int,
    FUNCTION = tl_planted.no);
CREATE FUNCTION tl_planted.abs(int) RETURNS int
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
UPDATE jobs SET status = '0';
SELECT job_table_set('jobs', ready_when => 'abs(id) > 2');
SET search_path = tl_planted, pg_catalog, public;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 1);
SHOW search_path;
SET search_path = public;
SELECT id FROM claim_jobs(NULL::jobs, 'w3', 1);
CREATE FUNCTION mine(int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT pg_temp.try($$SELECT job_table_set('jobs', ready_when => 'mine(id)')$$);
SELECT job_table_set('jobs', ready_when => 'public.mine(id)');
SELECT id FROM claim_jobs(NULL::jobs, 'w4', 1);
RESET search_path;

-- All at once, in partitions.
CREATE TABLE parts (id int, pr int, at timestamptz NOT NULL DEFAULT '-infinity',
    status text DEFAULT '0', sid text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (10);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (100);
INSERT INTO parts SELECT i, i % 4 FROM generate_series(1, 20) i;
UPDATE parts SET at = 'infinity' WHERE id = 7;
SELECT job_table_set('parts', order_by => 'pr DESC, id',
    run_at_column => 'at', ready_when => 'id <> 11');
SELECT array_agg(id) FROM claim_jobs(NULL::parts, 'a', 6);
SELECT release_jobs('parts', 'a', ARRAY[2, 15]);
SELECT array_agg(id) FROM claim_jobs(NULL::parts, 'b', 4);
SELECT array_agg(id) FROM claim_jobs(NULL::parts, 'a', 6);

SET client_min_messages = warning;
DROP TABLE jobs, parts;
DROP FUNCTION mine;
DROP SCHEMA tl_planted CASCADE;
