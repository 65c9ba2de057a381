-- Waiting for jobs: arguments, where it is refused, the trigger.  P86
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

CREATE TABLE letters (id int PRIMARY KEY, status text DEFAULT '0', sid text);

-- How long it takes: as long as it may, or no time at all.
CREATE FUNCTION pg_temp.took(query text, OUT answer text, OUT took text)
LANGUAGE plpgsql AS $$
DECLARE
    start timestamptz := clock_timestamp();
    span interval;
BEGIN
    answer := pg_temp.try(query);
    span := clock_timestamp() - start;
    took := CASE WHEN span < '2 s' THEN 'none' WHEN span >= '3 s' THEN 'all'
        ELSE span::text END;
END $$;

SELECT * FROM pg_temp.took($$SELECT count(*) FROM claim_jobs(NULL::letters, 'a', wait => '3 s')$$);
SELECT * FROM pg_temp.took($$SELECT count(*) FROM claim_jobs(NULL::letters, 'a', wait => '0')$$);
SELECT * FROM pg_temp.took($$SELECT count(*) FROM claim_jobs(NULL::letters, 'a', 0, wait => NULL)$$);
INSERT INTO letters VALUES (1), (2);
SELECT * FROM pg_temp.took($$SELECT id FROM claim_jobs(NULL::letters, 'a', 5, wait => NULL)$$);
-- Its own jobs, too, are there at once.
SELECT * FROM pg_temp.took($$SELECT id FROM claim_jobs(NULL::letters, 'a', 5, wait => '3 s')$$);
-- Jobs that are finished are not to wait for their commit.
SELECT * FROM pg_temp.took($$SELECT id FROM claim_jobs(NULL::letters, 'a', 5, done => ARRAY[1, 2], wait => NULL)$$);
SELECT id, status FROM letters ORDER BY id;
-- Nor are those that others hold, which this one can not finish.
SELECT * FROM pg_temp.took($$SELECT id FROM claim_jobs(NULL::letters, 'b', 5, done => ARRAY[1, 2], wait => '3 s')$$);

SELECT pg_temp.try($$SELECT claim_jobs(NULL::letters, 'a', wait => '-1 s')$$);
SELECT pg_temp.try($$SELECT claim_jobs('letters', 'a', wait => '1 s')$$);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.try($$SELECT claim_jobs(NULL::letters, 'a', wait => '1 s')$$);
SELECT count(*) FROM claim_jobs(NULL::letters, 'a');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.try($$SELECT claim_jobs(NULL::letters, 'a', wait => NULL)$$);
ROLLBACK;

-- wait_jobs outside of transactions, at any isolation level.
CALL wait_jobs('letters', '0');
CALL wait_jobs('letters', '10 ms');
INSERT INTO letters VALUES (3);
CALL wait_jobs('letters', NULL);
SET default_transaction_isolation = 'serializable';
CALL wait_jobs('letters', NULL);
RESET default_transaction_isolation;
DO $$
DECLARE
    ready boolean;
BEGIN
    CALL wait_jobs('letters', '1 s', ready);
    RAISE NOTICE '%', ready;
END $$;

-- A job that is locked is nobody's, nor is one that is done.
SELECT job_table_set('letters', paused => true);
CALL wait_jobs('letters', '0');
SELECT job_table_set('letters', paused => false);
SELECT id FROM claim_jobs(NULL::letters, 'a');
CALL wait_jobs('letters', '0');
SELECT finish_jobs('letters', 'a', ARRAY[3]);
CALL wait_jobs('letters', '0');

-- Where it would have to commit somebody's work.
BEGIN;
CALL wait_jobs('letters', '1 s');
ROLLBACK;
SELECT pg_temp.try($$CALL wait_jobs('letters', '1 s')$$);
\set SHOW_CONTEXT never
DO $$
DECLARE
    ready boolean;
BEGIN
    INSERT INTO letters VALUES (4);
    CALL wait_jobs('letters', '1 s', ready);
END $$;
DO $$
DECLARE
    ready boolean;
BEGIN
    BEGIN
        CALL wait_jobs('letters', '1 s', ready);
    EXCEPTION WHEN division_by_zero THEN
        NULL;
    END;
END $$;
CALL wait_jobs('letters', '-1 s');
CALL wait_jobs(NULL, '1 s');
SELECT count(*) FROM letters WHERE id = 4;

-- The trigger comes and goes, and makes no difference to others.
CREATE FUNCTION pg_temp.triggers(OUT tab text, OUT definition text)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT tgrelid::regclass, pg_get_triggerdef(oid) FROM pg_trigger
    WHERE tgfoid = 'tokenlock_job_wake'::regproc ORDER BY tgrelid::regclass::text COLLATE "C"
$$;
SELECT job_table_set('letters', wake => true);
SELECT job_table_set('letters', wake => true);
SELECT * FROM pg_temp.triggers();
SELECT wake, waiting FROM job_tables WHERE job_table = 'letters'::regclass;
INSERT INTO letters VALUES (4);
SELECT job_table_set('letters', ttl => '1 min');
SELECT job_table_reset('letters', 'ttl');
SELECT count(*) FROM pg_temp.triggers();
SELECT job_table_set('letters', wake => false);
SELECT * FROM pg_temp.triggers();
SELECT job_table_set('letters', wake => true);
ALTER TRIGGER tokenlock_wake ON letters RENAME TO "Wake them";
SELECT job_table_set('letters', wake => true);
SELECT * FROM pg_temp.triggers();
SELECT job_table_reset('letters', 'wake');
SELECT * FROM pg_temp.triggers();
SELECT job_table_set('letters', wake => true);
SELECT job_table_reset('letters');
SELECT * FROM pg_temp.triggers();
SELECT pg_temp.try($$SELECT tokenlock_job_wake()$$);

-- Partitions have it, too.
CREATE TABLE "Post" (id int NOT NULL, day date, status text DEFAULT '0', sid text)
    PARTITION BY RANGE (day);
CREATE TABLE "Post 1" PARTITION OF "Post" FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')
    PARTITION BY LIST (status);
CREATE TABLE post_1_all PARTITION OF "Post 1" DEFAULT;
SELECT job_table_set('"Post"', id_column => 'id', wake => true);
SELECT * FROM pg_temp.triggers();
-- So do new ones, at once, also below others and in the shadow of a temporary
-- table; not if their owner may not, nor what has a trigger of that name.
CREATE TEMP TABLE post_2 (id int);
CREATE TABLE public.post_2 PARTITION OF "Post" FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE IF NOT EXISTS letters PARTITION OF "Post" DEFAULT;
CREATE TABLE post_3 (LIKE "Post") PARTITION BY RANGE (id);
CREATE TABLE post_3_few PARTITION OF post_3 FOR VALUES FROM (0) TO (10);
INSERT INTO post_3 VALUES (1, '2026-03-01');
ALTER TABLE "Post" ATTACH PARTITION post_3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
CREATE TABLE post_3_many PARTITION OF post_3 DEFAULT;
CREATE INDEX post_id ON ONLY "Post" (id);
CREATE INDEX post_2_id ON public.post_2 (id);
ALTER INDEX post_id ATTACH PARTITION post_2_id;
SELECT * FROM pg_temp.triggers();
SELECT wake FROM job_tables WHERE job_table = '"Post"'::regclass;
ALTER TABLE "Post" DETACH PARTITION post_3;
DROP TABLE post_3;
CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TABLE post_4 (LIKE "Post");
CREATE TRIGGER tokenlock_wake AFTER DELETE ON post_4 EXECUTE FUNCTION pg_temp.nothing();
ALTER TABLE "Post" ATTACH PARTITION post_4 FOR VALUES FROM ('2026-04-01') TO ('2026-05-01');
REVOKE EXECUTE ON FUNCTION tokenlock_job_wake FROM PUBLIC;
CREATE ROLE tl_waiting_owner;
GRANT CREATE ON SCHEMA public TO tl_waiting_owner;
ALTER TABLE "Post" OWNER TO tl_waiting_owner;
SET ROLE tl_waiting_owner;
CREATE TABLE post_5 PARTITION OF "Post" FOR VALUES FROM ('2026-05-01') TO ('2026-06-01');
RESET ROLE;
GRANT EXECUTE ON FUNCTION tokenlock_job_wake TO PUBLIC;
ALTER TABLE "Post" DISABLE TRIGGER tokenlock_wake;
CREATE TABLE post_6 PARTITION OF "Post" FOR VALUES FROM ('2026-06-01') TO ('2026-07-01');
SELECT tab FROM pg_temp.triggers();
DROP TRIGGER tokenlock_wake ON post_4;
SELECT job_table_set('"Post"', wake => true);
SELECT tab FROM pg_temp.triggers();
SELECT job_table_reset('"Post"');
SELECT count(*) FROM pg_temp.triggers();

-- wake_jobs: for whoever may write to the table.
CREATE ROLE tl_waiting_writer;
CREATE ROLE tl_waiting_reader;
GRANT INSERT (id) ON letters TO tl_waiting_writer;
GRANT SELECT ON letters TO tl_waiting_reader;
CREATE VIEW letters_view AS SELECT * FROM letters;
SELECT wake_jobs('letters');
SELECT pg_temp.try($$SELECT wake_jobs('letters_view')$$);
SELECT pg_temp.try($$SELECT wake_jobs(NULL)$$);
SELECT pg_temp.try($$SELECT wake_jobs(0)$$);
CALL wait_jobs('letters_view', '1 s');
SELECT pg_temp.try($$SELECT job_table_set('letters_view', wake => true)$$);
SET ROLE tl_waiting_writer;
SELECT wake_jobs('letters');
CALL wait_jobs('letters', '0');
SET ROLE tl_waiting_reader;
SELECT pg_temp.try($$SELECT wake_jobs('letters')$$);
SELECT pg_temp.try($$SELECT job_table_set('letters', wake => true)$$);
RESET ROLE;

-- Triggers of the application that change other jobs in the middle of a claim.
CREATE FUNCTION pg_temp.follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE letters SET status = '0' WHERE id = 3;
    RETURN NULL;
END $$;
SELECT job_table_set('letters', wake => true);
CREATE TRIGGER follow AFTER UPDATE ON letters FOR EACH ROW
    WHEN (new.id = 4 AND new.status = '2') EXECUTE FUNCTION pg_temp.follow();
SELECT id FROM claim_jobs(NULL::letters, 'a');
SELECT id FROM claim_jobs(NULL::letters, 'a', wait => NULL, resume => false);

-- A claim that waits cannot wait for jobs while it looks.
CREATE FUNCTION pg_temp.wait_more() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM claim_jobs(NULL::letters, 'b', wait => '10 ms');
    RETURN new;
END $$;
CREATE TRIGGER wait_more BEFORE UPDATE ON letters FOR EACH ROW
    EXECUTE FUNCTION pg_temp.wait_more();
UPDATE letters SET status = '0' WHERE id = 4;
SELECT pg_temp.try($$SELECT claim_jobs(NULL::letters, 'c', wait => NULL)$$);
DROP TRIGGER wait_more ON letters;
SELECT waiting FROM job_tables WHERE job_table = 'letters'::regclass;

-- The extension goes with its triggers, or not at all.
BEGIN;
\set VERBOSITY terse
DROP EXTENSION tokenlock;
ROLLBACK;
BEGIN;
SET client_min_messages = error;
DROP EXTENSION tokenlock CASCADE;
INSERT INTO letters VALUES (9);
ROLLBACK;
DROP TABLE letters, "Post" CASCADE;
REVOKE ALL ON SCHEMA public FROM tl_waiting_owner;
DROP ROLE tl_waiting_writer, tl_waiting_reader, tl_waiting_owner;
