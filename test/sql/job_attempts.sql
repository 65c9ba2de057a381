-- Attempts, their end, and failing: attempts_column, max_attempts,
-- error_column, fail_jobs.  P93, P94, P95, P97
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

-- A lease of 1 ms has lapsed 10 ms later.
CREATE FUNCTION pg_temp.die(worker text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_jobs('jobs', worker, ttl => '1 ms');
    PERFORM pg_sleep(0.01);
END $$;

CREATE TABLE jobs (id int PRIMARY KEY, attempts smallint, error varchar(40),
    status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT generate_series(1, 8);
SELECT job_table_set('jobs', attempts_column => 'attempts',
    max_attempts => 3, error_column => 'error');

-- P93: a job that kills its worker is handed out three times.
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w1', 1);
SELECT pg_temp.die('w1');
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w2', 1);
-- Who lost a job changes nothing of it any more.
SELECT fail_jobs('jobs', 'w1', ARRAY[1], error => 'late', give_up => true);
SELECT pg_temp.die('w2');
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w3', 1);
SELECT pg_temp.die('w3');
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w4', 2);
SELECT * FROM jobs WHERE id = 1;
SELECT sid, claimed FROM job_workers WHERE job_table = 'jobs'::regclass
    AND claimed > 0 ORDER BY 1;
-- Resuming counts, too, and ends.
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w4', 1);
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w4', 1);
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w4', 1);
SELECT id, attempts, status, error FROM jobs WHERE id < 4 ORDER BY id;
SELECT claimed FROM job_workers WHERE job_table = 'jobs'::regclass
    AND sid = 'w4';
-- So does what lapses and is given back by a claim for new work only.
SELECT pg_temp.die('w4');
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w4', 1, ttl => '1 min',
    resume => false);
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w4', 3);
-- Ready rows whose attempts are used up are not handed out; nothing is lost
-- of a batch for them.
UPDATE jobs SET attempts = 3 WHERE id IN (4, 6);
SELECT finish_jobs('jobs', 'w4', ARRAY[3]);
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w5', 2);
SELECT id, attempts, status, error FROM jobs ORDER BY id;
BEGIN;
UPDATE jobs SET status = '0' WHERE id = 4;
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w5', 3);
ROLLBACK;
SELECT id, attempts, status FROM jobs WHERE id IN (4, 5, 7, 8) ORDER BY id;

-- P94, P97: released or rolled back, the attempt is given back.
TRUNCATE jobs;
INSERT INTO jobs SELECT generate_series(1, 4);
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w6', 3, resume => false);
SELECT release_jobs('jobs', 'w6', ARRAY[1]);
SELECT release_jobs('jobs', 'w6');
SELECT id, attempts FROM jobs ORDER BY id;
UPDATE jobs SET attempts = NULL WHERE id = 2;
BEGIN;
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w7', 2);
ROLLBACK;
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w8', 2);

-- Failing without a time: ready at once, until the attempts are used up.
SELECT fail_jobs('jobs', 'w8', ARRAY[1, 2, 3], error => 'no way ' || repeat('x', 50));
SELECT id, attempts, status, sid, error FROM jobs ORDER BY id;
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w8', 1);
SELECT fail_jobs('jobs', 'w8', ARRAY[1], retry_in => '0');
SELECT id, attempts, error FROM claim_jobs(NULL::jobs, 'w8', 1);
SELECT fail_jobs('jobs', 'w8', ARRAY[1], error => 'third');
SELECT id, attempts, status, sid, error FROM jobs WHERE id = 1;
SELECT id FROM claim_jobs(NULL::jobs, 'w8', 2);
SELECT fail_jobs('jobs', 'w8', ARRAY[2], give_up => true, error => 'for good');
SELECT fail_jobs('jobs', 'w8', ARRAY[2]), fail_jobs('jobs', 'other', ARRAY[3]),
    fail_jobs('jobs', 'w8', '{}'::int[]);
SELECT id, attempts, status, sid, error FROM jobs ORDER BY id;
SELECT claimed FROM job_workers WHERE job_table = 'jobs'::regclass
    AND sid = 'w8';
BEGIN;
SELECT fail_jobs('jobs', 'w8', ARRAY[3]);
ROLLBACK;
SELECT id, attempts FROM claim_jobs(NULL::jobs, 'w8', 1);
-- A trigger that does not let a job fail does not stop the others.
CREATE FUNCTION pg_temp.no() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF new.status = '3' THEN RETURN NULL; END IF; RETURN new; END $$;
CREATE TRIGGER no BEFORE UPDATE ON jobs FOR EACH ROW
    EXECUTE FUNCTION pg_temp.no();
UPDATE jobs SET attempts = 9, status = '0' WHERE id < 4;
INSERT INTO jobs VALUES (5);
SELECT id FROM claim_jobs(NULL::jobs, 'w9', 2);
DROP TABLE jobs;

-- P95: with a time it waits, and keeps its place in line.
CREATE TABLE jobs (id int PRIMARY KEY, pr int DEFAULT 5, run_at timestamptz,
    tries int, status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT generate_series(1, 100);
UPDATE jobs SET pr = 9 WHERE id = 1;
SELECT job_table_set('jobs', order_by => 'pr DESC, id',
    run_at_column => 'run_at');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 1);
SELECT pg_temp.die('w1');
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 1);
SELECT fail_jobs('jobs', 'w2', ARRAY[1], error => 'no', retry_in => '10 s');
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 1);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 1, done => ARRAY[2]);
SELECT run_at - clock_timestamp() BETWEEN '9 s' AND '10 s' AS in_10_s,
    status, sid FROM jobs WHERE id = 1;
UPDATE jobs SET run_at = run_at - interval '10 s' WHERE id = 1;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 1, done => ARRAY[3]);
SELECT fail_jobs('jobs', 'w2', ARRAY[1]);
SELECT run_at - clock_timestamp() BETWEEN '4 s' AND '5 s' AS in_5_s
FROM jobs WHERE id = 1;

-- The time grows with the attempts: 5 s, doubled, at most an hour.
SELECT job_table_set('jobs', attempts_column => 'tries', max_attempts => 40);
CREATE FUNCTION pg_temp.fail(attempt int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before timestamptz;
    after timestamptz;
BEGIN
    UPDATE jobs SET status = '0', run_at = NULL, tries = attempt - 1 WHERE id = 1;
    PERFORM claim_jobs(NULL::jobs, 'w3', 1);
    before := clock_timestamp();
    PERFORM fail_jobs('jobs', 'w3', ARRAY[1]);
    after := clock_timestamp();
    RETURN (SELECT CASE WHEN status <> '0' THEN 'failed' ELSE
        date_trunc('second', run_at - before)::text END
        FROM jobs WHERE id = 1 AND (status <> '0' OR
            run_at - after <= date_trunc('second', run_at - before)));
END $$;
SELECT n, pg_temp.fail(n) FROM unnest('{1,2,3,4,9,10,11,12,39,40}'::int[]) n;
SELECT id, tries, status, sid, run_at FROM jobs WHERE id = 1;

-- 20 of 100 fail always: the others are done within ten batches.
UPDATE jobs SET status = '0', run_at = NULL, tries = 0, pr = id % 3;
DO $$
DECLARE
    ids int[];
BEGIN
    FOR i IN 1 .. 10 LOOP
        SELECT array_agg(id) INTO ids FROM claim_jobs(NULL::jobs, 'w4', 10);
        PERFORM fail_jobs('jobs', 'w4', ARRAY(SELECT unnest(ids)
            INTERSECT SELECT generate_series(5, 100, 5)), retry_in => '1h');
        PERFORM finish_jobs('jobs', 'w4', ids);
    END LOOP;
END $$;
SELECT status, count(*), min(tries), max(tries) FROM jobs GROUP BY 1 ORDER BY 1;

-- Arguments.
SELECT pg_temp.try($$SELECT fail_jobs('jobs', 'w4', NULL)$$);
SELECT pg_temp.try($$SELECT fail_jobs('jobs', 'w4', '{1,NULL}'::int[])$$);
SELECT pg_temp.try($$SELECT fail_jobs('jobs', '', '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT fail_jobs(NULL, 'w4', '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT fail_jobs('jobs', 'w4', '{1}'::int[],
    retry_in => '-1 s')$$);
SELECT pg_temp.try($$SELECT fail_jobs('jobs', 'w4', '{1}'::int[],
    give_up => NULL)$$);
SELECT job_table_reset('jobs', 'run_at_column');
SELECT pg_temp.try($$SELECT fail_jobs('jobs', 'w4', '{1}'::int[],
    retry_in => '1 s')$$);

-- Settings.
SELECT pg_temp.try($$SELECT job_table_set('jobs', max_attempts => 0)$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs',
    attempts_column => 'status')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', attempts_column => 'pr',
    error_column => 'pr')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', attempts_column => 'pr',
    run_at_column => 'pr')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', error_column => 'pr')$$);
SELECT job_table_reset('jobs');
SELECT pg_temp.try($$SELECT job_table_set('jobs', max_attempts => 3)$$);
-- A type that has no value for failed jobs is met when one is needed.
CREATE TYPE three AS ENUM ('0', '1', '2');
CREATE TABLE jobs_3 (id int PRIMARY KEY, tries bigint, status three DEFAULT '0',
    sid text NOT NULL DEFAULT 'nobody');
INSERT INTO jobs_3 VALUES (1);
SELECT id FROM claim_jobs(NULL::jobs_3, 'w', 1);
SELECT fail_jobs('jobs_3', 'w', ARRAY[1]);
SELECT * FROM jobs_3;
SELECT id FROM claim_jobs(NULL::jobs_3, 'w', 1);
SELECT pg_temp.try($$SELECT fail_jobs('jobs_3', 'w', ARRAY[1], give_up => true)$$);
SELECT pg_temp.try($$SELECT fail_jobs('jobs_3', 'w', ARRAY[1], give_up => true)$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs_3', attempts_column => 'tries',
    max_attempts => 1)$$);
ALTER TYPE three ADD VALUE 'dead';
SELECT job_table_set('jobs_3', failed_status => 'dead');
SELECT fail_jobs('jobs_3', 'w', ARRAY[1], give_up => true);
SELECT * FROM jobs_3;

-- In partitions; and with a planted operator in front.
CREATE TABLE parts (id int PRIMARY KEY, a int, e text, at timestamptz,
    status text DEFAULT '0', sid text) PARTITION BY LIST (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1, 2, 3);
CREATE TABLE parts_2 PARTITION OF parts DEFAULT;
INSERT INTO parts (id) SELECT generate_series(1, 5);
SELECT job_table_set('parts', attempts_column => 'a', max_attempts => 2,
    error_column => 'e', run_at_column => 'at');
CREATE SCHEMA tl_planted;
CREATE FUNCTION tl_planted.no(int, int) RETURNS int
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE OPERATOR tl_planted.+ (LEFTARG = int, RIGHTARG = int,
    FUNCTION = tl_planted.no);
CREATE OPERATOR tl_planted.- (LEFTARG = int, RIGHTARG = int,
    FUNCTION = tl_planted.no);
CREATE FUNCTION tl_planted.power(float8, float8) RETURNS float8
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
SET search_path = tl_planted, pg_catalog, public;
SELECT array_agg(id) FROM claim_jobs(NULL::parts, 'w', 4);
SELECT fail_jobs('parts', 'w', ARRAY[1, 4], error => 'first');
SELECT release_jobs('parts', 'w', ARRAY[2]);
RESET search_path;
UPDATE parts SET at = NULL;
SELECT array_agg(id) FROM claim_jobs(NULL::parts, 'w', 5);
SELECT fail_jobs('parts', 'w', ARRAY[1, 2], error => 'second');
SELECT id, a, e, at IS NOT NULL AS put_off, status, sid FROM parts ORDER BY id;

SET client_min_messages = warning;
DROP TABLE jobs, jobs_3, parts;
DROP TYPE three;
DROP SCHEMA tl_planted CASCADE;
