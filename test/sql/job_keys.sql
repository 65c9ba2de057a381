-- Jobs of one key, one at a time and in order: key_column.  P102
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

CREATE FUNCTION pg_temp.die(job_table regclass, worker text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_jobs(job_table, worker, ttl => '1 ms');
    PERFORM pg_sleep(0.01);
END $$;

-- One of each key, the first; those without a key as many as there are.
CREATE TABLE jobs (id int PRIMARY KEY, k text, status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT i, chr(97 + i % 3) FROM generate_series(1, 9) i;
INSERT INTO jobs VALUES (10, NULL), (11, NULL), (12, 'd');
SELECT job_table_set('jobs', key_column => 'k');
SELECT key_column FROM job_tables WHERE job_table = 'jobs'::regclass;
SELECT id, k FROM claim_jobs(NULL::jobs, 'w1', 2);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w2', 20);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w3', 20);
-- Its own again, and no other.
SELECT id, k FROM claim_jobs(NULL::jobs, 'w1', 20);
-- What is finished lets the next one of its key go, in the same call.
SELECT id, k FROM claim_jobs(NULL::jobs, 'w1', 20, done => ARRAY[1]);
SELECT finish_jobs('jobs', 'w2', ARRAY[3, 10, 12]);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w3', 20);
-- So does what is given up, or deleted, or finished by hand, in a while.
SELECT fail_jobs('jobs', 'w1', ARRAY[2], give_up => true);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w3', 2);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w4', 20);
DELETE FROM jobs WHERE id = 4;
UPDATE jobs SET status = '1' WHERE id = 5;
DO $$
BEGIN
    FOR i IN 1 .. 1000 LOOP
        PERFORM FROM claim_jobs(NULL::jobs, 'w4', 2);
        EXIT WHEN (SELECT count(*) = 2 FROM jobs WHERE sid = 'w4');
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT id, k, sid FROM jobs WHERE status = '2' ORDER BY id;
SELECT release_jobs('jobs', 'w4');
-- Released and failed ones come first again.
INSERT INTO jobs VALUES (13, 'c'), (14, 'b'), (15, NULL);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w5', 3);
SELECT fail_jobs('jobs', 'w5', ARRAY[7]), release_jobs('jobs', 'w5', ARRAY[8]);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w5', 20, resume => false);
DROP TABLE jobs;

-- The order is that of the table, also among keys that come free together.
CREATE TABLE jobs (id int PRIMARY KEY, k int, status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT i, CASE WHEN i < 31 THEN i % 6 ELSE i % 3 END
FROM generate_series(1, 36) i;
SELECT job_table_set('jobs', key_column => 'k');
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 6);
SELECT finish_jobs('jobs', 'w1', ARRAY[5, 1, 6, 2, 4, 3]);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 2);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 3);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[8, 7]);
-- Claims that are undone, as a whole and in part.
BEGIN;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[12, 13, 14]);
ROLLBACK;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9);
BEGIN;
SELECT finish_jobs('jobs', 'w1', ARRAY[13]);
SAVEPOINT s;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 4);
ROLLBACK TO s;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 4);
SELECT finish_jobs('jobs', 'w1', ARRAY[19]);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 4);
COMMIT;
SELECT id, k, sid FROM jobs WHERE status = '2' ORDER BY id;
-- All of them in the end, each key in order.
CREATE TABLE ran (n serial, id int, k int);
DO $$
BEGIN
    FOR i IN 1 .. 50 LOOP
        INSERT INTO ran (id, k) SELECT id, k FROM claim_jobs(NULL::jobs, 'w1', 3,
            done => ARRAY(SELECT id FROM jobs WHERE status = '2' AND sid = 'w1'));
        PERFORM finish_jobs('jobs', 'w2', ARRAY(SELECT id FROM jobs
            WHERE status = '2' AND sid = 'w2'));
    END LOOP;
END $$;
SELECT status, count(*) FROM jobs GROUP BY status;
SELECT count(*), bool_and(id > before) FROM
    (SELECT id, lag(id) OVER (PARTITION BY k ORDER BY n) AS before FROM ran) r;
DROP TABLE ran, jobs;

-- P102: a dead worker's job is taken over, not passed by.
CREATE TABLE jobs (id int PRIMARY KEY, grp text, status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT i, 'g' FROM generate_series(1, 3) i;
SELECT job_table_set('jobs', key_column => 'grp', ttl => '1s');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 1);
SELECT pg_temp.die('jobs', 'w1');
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5, ttl => '1 min');
-- A claim for new work only gives old rows back, and may get them.
SELECT pg_temp.die('jobs', 'w2');
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5, ttl => '1 min', resume => false);
SELECT finish_jobs('jobs', 'w2', ARRAY[1]);
-- A pause holds up all.
SELECT job_table_set('jobs', paused => true);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
SELECT job_table_set('jobs', paused => false);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
-- A job that was set to claimed by hand counts; and what sorts first is next.
UPDATE jobs SET status = '2', sid = 'hand' WHERE id = 3;
INSERT INTO jobs VALUES (0, 'g'), (4, 'h');
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5, done => ARRAY[2]);
SELECT finish_jobs('jobs', 'hand', ARRAY[3]);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5);
DROP TABLE jobs;

-- Attempts and times: a job that waits to be tried again holds its key up; one
-- that is given up, or not ready by the table's condition, does not.
CREATE TABLE jobs (id int PRIMARY KEY, k uuid, pr int DEFAULT 0, at timestamptz,
    tries int, error text, blocked boolean DEFAULT false,
    status text DEFAULT '0', sid text);
INSERT INTO jobs (id, k) SELECT i, md5((i % 2)::text)::uuid
FROM generate_series(1, 8) i;
SELECT job_table_set('jobs', key_column => 'k', order_by => 'pr DESC, id',
    run_at_column => 'at', attempts_column => 'tries', max_attempts => 2,
    error_column => 'error', ready_when => 'NOT blocked');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5);
SELECT fail_jobs('jobs', 'w1', ARRAY[1], retry_in => '1 h', error => 'no');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5);
UPDATE jobs SET at = now() WHERE id = 1;
DO $$
BEGIN
    FOR i IN 1 .. 1000 LOOP
        PERFORM FROM claim_jobs(NULL::jobs, 'w2', 5);
        EXIT WHEN FOUND;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT id, tries, sid FROM jobs WHERE status = '2' ORDER BY id;
SELECT fail_jobs('jobs', 'w2', ARRAY[1], error => 'no again');
SELECT id, tries FROM claim_jobs(NULL::jobs, 'w2', 5);
-- One whose attempts are used up when its turn comes makes room for the next.
UPDATE jobs SET tries = 2 WHERE id IN (4, 6);
SELECT id, tries FROM claim_jobs(NULL::jobs, 'w1', 5, done => ARRAY[2]);
SELECT id, status, tries, error FROM jobs WHERE status = '3' ORDER BY id;
UPDATE jobs SET blocked = true WHERE id = 5;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5, done => ARRAY[3]);
UPDATE jobs SET blocked = false, pr = 1 WHERE id = 5;
INSERT INTO jobs (id, k) VALUES (9, md5('1')::uuid);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5, done => ARRAY[7]);
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 5, done => ARRAY[5]);
DROP TABLE jobs;

-- A key with many jobs in front, in an order of the table's own: the others
-- are reached.
CREATE TABLE jobs (id int PRIMARY KEY, k int, pr int, status text DEFAULT '0',
    sid text);
CREATE INDEX ON jobs (k, status, pr, id);
INSERT INTO jobs SELECT i, 1, 1 FROM generate_series(1, 5000) i;
INSERT INTO jobs VALUES (5001, 2, 3), (5002, 3, 2), (5003, NULL, 2), (5004, 2, 2),
    (5005, NULL, 4);
SELECT job_table_set('jobs', key_column => 'k', order_by => 'pr, id');
SELECT id, k FROM claim_jobs(NULL::jobs, 'w1', 1);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w2', 2);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w2', 10);
SELECT id, k FROM claim_jobs(NULL::jobs, 'w2', 10, done => ARRAY[5004, 5002]);
DROP TABLE jobs;

-- Keys of any type, and equal as that type says.
CREATE COLLATION tl_any_case (provider = icu, locale = 'und-u-ks-level2',
    deterministic = false);
CREATE DOMAIN tl_number AS numeric;
CREATE TABLE jobs (id int PRIMARY KEY, a text COLLATE tl_any_case, b tl_number,
    c bit(3), d text DEFAULT repeat('long', 100), "e""' " "char", f point,
    g json, status text DEFAULT '0', sid text);
INSERT INTO jobs (id, a, b, c, "e""' ") VALUES
    (1, 'Anna', 1.0, B'101', '1'), (2, 'anna', 1.00, B'101', '1'),
    (3, 'Bert', 2, B'100', '2'), (4, 'ANNA', 1, B'100', '');
CREATE FUNCTION pg_temp.ids(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ids int[];
    answer text[];
BEGIN
    UPDATE jobs SET status = '0', sid = NULL;
    PERFORM job_table_reset('jobs');
    PERFORM job_table_set('jobs', key_column => key);
    FOR i IN 1 .. 5 LOOP
        SELECT array_agg(id) INTO ids FROM claim_jobs(NULL::jobs, 'w', 9, done => ids);
        answer := answer || coalesce(ids::text, '-');
    END LOOP;
    RETURN array_to_string(answer, ' ');
END $$;
SELECT pg_temp.ids('a');
SELECT pg_temp.ids('b');
SELECT pg_temp.ids('d');
SELECT pg_temp.ids('e"'' ');
SELECT pg_temp.try($$SELECT job_table_set('jobs', key_column => 'c')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', key_column => 'f')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', key_column => 'g')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', key_column => 'h')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', key_column => 'sid')$$);
SELECT pg_temp.try($$SELECT job_table_set('jobs', key_column => 'id')$$);
-- A column that goes away, and one that changes its type.
SELECT job_table_set('jobs', key_column => 'b');
ALTER TABLE jobs RENAME b TO bb;
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w')$$);
SELECT job_table_set('jobs', key_column => 'bb');
UPDATE jobs SET status = '0';
SELECT id, bb FROM claim_jobs(NULL::jobs, 'v', 2);
ALTER TABLE jobs ALTER bb TYPE text;
SELECT id, bb FROM claim_jobs(NULL::jobs, 'w', 9);
SELECT job_table_reset('jobs', 'key_column');
SELECT key_column FROM job_tables WHERE job_table = 'jobs'::regclass;
DROP TABLE jobs;
DROP DOMAIN tl_number;
DROP COLLATION tl_any_case;

-- Who waits is not told of jobs whose turn has not come.
CREATE TABLE jobs (id int PRIMARY KEY, k text, at timestamptz,
    status text DEFAULT '0', sid text);
INSERT INTO jobs VALUES (1, 'a'), (2, 'a');
SELECT job_table_set('jobs', key_column => 'k');
CALL wait_jobs('jobs', '0');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5);
CALL wait_jobs('jobs', '0');
SELECT finish_jobs('jobs', 'w1', ARRAY[1]);
CALL wait_jobs('jobs', '0');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5);
INSERT INTO jobs VALUES (3, NULL);
CALL wait_jobs('jobs', '0');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5, resume => false);
INSERT INTO jobs VALUES (4, 'b'), (5, 'b'), (6, NULL);
SELECT job_table_set('jobs', run_at_column => 'at');
UPDATE jobs SET at = now() + '1 h' WHERE id IN (4, 6);
CALL wait_jobs('jobs', '0');
UPDATE jobs SET at = NULL WHERE id = 4;
CALL wait_jobs('jobs', '0');
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 5, resume => false);
DROP TABLE jobs;

-- The indexes that suit.
CREATE TABLE jobs (id int PRIMARY KEY, k text, pr int, at timestamptz NOT NULL,
    status char(1) DEFAULT '0', sid text);
CREATE FUNCTION pg_temp.missing() RETURNS text LANGUAGE sql AS
$$ SELECT missing_index FROM job_tables WHERE job_table = 'jobs'::regclass $$;
SELECT job_table_set('jobs', key_column => 'k');
SELECT pg_temp.missing();
DO $$ BEGIN EXECUTE pg_temp.missing(); END $$;
SELECT coalesce(pg_temp.missing(), 'none');
DROP INDEX jobs_k_status_id_idx;
CREATE INDEX ON jobs (k, status, id DESC);
SELECT pg_temp.missing();
CREATE INDEX ON jobs (k, status, id);
SELECT coalesce(pg_temp.missing(), 'none');
SELECT job_table_set('jobs', order_by => 'pr DESC, k', run_at_column => 'at',
    ready_when => 'pr > 0');
SELECT pg_temp.missing();
DO $$ BEGIN EXECUTE pg_temp.missing(); END $$;
SELECT coalesce(pg_temp.missing(), 'none');
DROP TABLE jobs;

-- In partitions, in SERIALIZABLE too.
CREATE TABLE jobs (id int, k int, status text DEFAULT '0', sid text)
    PARTITION BY LIST (status);
CREATE TABLE jobs_0 PARTITION OF jobs FOR VALUES IN ('0');
CREATE TABLE jobs_x PARTITION OF jobs DEFAULT;
ALTER TABLE jobs ALTER id SET NOT NULL;
CREATE INDEX ON jobs (id);
INSERT INTO jobs SELECT i, i % 2 FROM generate_series(1, 8) i;
SELECT job_table_set('jobs', id_column => 'id', key_column => 'k');
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[1]);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 9);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[2]);
COMMIT;
SELECT finish_jobs('jobs', 'w1', ARRAY[3]);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 9);
TRUNCATE jobs;
INSERT INTO jobs SELECT i, i % 2 FROM generate_series(1, 8) i;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9);

-- A prepared transaction keeps its keys.
BEGIN;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[1]);
PREPARE TRANSACTION 'tokenlock_keys';
INSERT INTO jobs VALUES (0, 1);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 9);
COMMIT PREPARED 'tokenlock_keys';
SELECT id, k, sid FROM jobs WHERE status = '2' ORDER BY id;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 9);

SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9, done => ARRAY[2, 3]);
SELECT finish_jobs('jobs', 'w1', ARRAY[0, 4]);
BEGIN;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9);
PREPARE TRANSACTION 'tokenlock_keys';
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 9);
ROLLBACK PREPARED 'tokenlock_keys';
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 9);

-- With row security a key counts among the rows that are seen.
CREATE TABLE seen (id int PRIMARY KEY, k int, who text, status text DEFAULT '0',
    sid text);
INSERT INTO seen SELECT i, i % 2, CASE WHEN i > 2 THEN 'regress_jobs_keys' END
FROM generate_series(1, 8) i;
CREATE ROLE regress_jobs_keys;
GRANT SELECT, UPDATE ON seen TO regress_jobs_keys;
ALTER TABLE seen ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON seen TO regress_jobs_keys USING (who = current_user);
SELECT job_table_set('seen', key_column => 'k');
SET ROLE regress_jobs_keys;
SELECT array_agg(id) FROM claim_jobs(NULL::seen, 'w1', 9);
SELECT array_agg(id) FROM claim_jobs(NULL::seen, 'w1', 9, done => ARRAY[3]);
SELECT array_agg(id) FROM claim_jobs(NULL::seen, 'w2', 9);
RESET ROLE;
SELECT finish_jobs('seen', 'w1', ARRAY[4, 5]);
SELECT array_agg(id) FROM claim_jobs(NULL::seen, 'w2', 9);

SET client_min_messages = warning;
DROP TABLE jobs, seen;
DROP ROLE regress_jobs_keys;
