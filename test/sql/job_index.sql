-- The index that a job table lacks: job_tables.missing_index says it, it can
-- be made as it stands, and then a claim reads no more than it needs.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE FUNCTION pg_temp.missing(tab regclass) RETURNS text
LANGUAGE sql AS 'SELECT missing_index FROM job_tables WHERE job_table = tab';

-- How many rows has this transaction read?
CREATE FUNCTION pg_temp.rows_read(tab regclass) RETURNS bigint
LANGUAGE sql AS $$
    SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
    FROM pg_stat_xact_all_tables
    WHERE relid = tab
        OR relid IN (SELECT relid FROM pg_partition_tree(tab)) $$;

-- How many rows does a statement answer, and are many more read for it?
CREATE FUNCTION pg_temp.reading(tab regclass, statement text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    read bigint := pg_temp.rows_read(tab);
    n bigint;
BEGIN
    EXECUTE format(statement, tab) INTO n;
    read := pg_temp.rows_read(tab) - read;
    RETURN concat(n, CASE WHEN read > 150 THEN ' of ' || read END);
END $$;

-- Make what is missing, and see whether it is missed any longer, and how a
-- worker fares: a claim, its own rows again, giving them back.
CREATE PROCEDURE pg_temp.make(tab regclass, in_key_order bool DEFAULT false)
LANGUAGE plpgsql AS $$
DECLARE
    statement text := pg_temp.missing(tab);
BEGIN
    RAISE INFO '%', coalesce(statement, 'nothing is missing');
    IF statement IS NOT NULL THEN
        EXECUTE statement;
        IF pg_temp.missing(tab) IS NOT NULL THEN
            RAISE INFO 'still: %', pg_temp.missing(tab);
        END IF;
    END IF;
    COMMIT;
    IF in_key_order THEN
        RETURN;
    END IF;
    EXECUTE format('ANALYZE %s', tab);
    COMMIT;
    RAISE INFO 'rows: % claimed, % again, % released',
        pg_temp.reading(tab,
            'SELECT count(*) FROM claim_jobs(NULL::%s, ''a'', 5)'),
        pg_temp.reading(tab,
            'SELECT count(*) FROM claim_jobs(NULL::%s, ''a'', 5)'),
        pg_temp.reading(tab, 'SELECT release_jobs(''%s'', ''a'')');
END $$;

-- The settings of most of these tables, and what they are filled with: 2000
-- jobs, of which 1960 are done.
CREATE FUNCTION pg_temp.status(i int) RETURNS text
LANGUAGE sql AS $$ SELECT CASE WHEN i % 50 = 7 THEN '0' ELSE '1' END $$;
CREATE TABLE jobs (id int PRIMARY KEY, pr int, at timestamptz,
    due timestamptz NOT NULL DEFAULT '-infinity', blocked bool DEFAULT false,
    status text DEFAULT '0', sid text, grp int);
INSERT INTO jobs
SELECT i, i % 7, '-infinity', '-infinity', false, pg_temp.status(i), NULL,
    i % 13
FROM generate_series(1, 2000) i;
CREATE PROCEDURE pg_temp.try(settings text,
    in_key_order bool DEFAULT false)
LANGUAGE plpgsql AS $$
DECLARE
    i regclass;
BEGIN
    PERFORM job_table_reset('jobs');
    FOR i IN SELECT indexrelid FROM pg_index
        WHERE indrelid = 'jobs'::regclass AND NOT indisprimary
    LOOP
        EXECUTE 'DROP INDEX ' || i;
    END LOOP;
    EXECUTE format('SELECT job_table_set(''jobs'', %s)', settings);
    COMMIT;
    CALL pg_temp.make('jobs', in_key_order);
END $$;

-- In the order of the key nothing is missing once it is known where to start.
SELECT job_table_set('jobs', paused => false);
SELECT pg_temp.missing('jobs');
CALL pg_temp.try($$order_by => 'pr DESC, id'$$);
CALL pg_temp.try($$order_by => 'pr, id DESC'$$);
CALL pg_temp.try($$order_by => 'at DESC NULLS LAST, pr NULLS FIRST'$$);
CALL pg_temp.try($$order_by => 'pr, status, pr DESC, id, blocked'$$);
CALL pg_temp.try($$run_at_column => 'at'$$);
CALL pg_temp.try($$run_at_column => 'due'$$);
CALL pg_temp.try($$run_at_column => 'due', order_by => 'pr'$$);
CALL pg_temp.try($$run_at_column => 'due', order_by => 'due, pr DESC'$$);
CALL pg_temp.try($$ready_when => 'NOT blocked'$$);
CALL pg_temp.try($$ready_when => 'NOT blocked AND NOT EXISTS
    (SELECT FROM public.jobs j WHERE j.id = -job.id)', order_by => 'pr'$$);

-- Keys that take turns.
CALL pg_temp.try($$key_column => 'grp'$$, in_key_order => true);
CALL pg_temp.try($$key_column => 'grp', order_by => 'pr DESC'$$);
CALL pg_temp.try($$key_column => 'grp', order_by => 'grp, id'$$);

-- Others that serve as well, and some that do not.
CREATE PROCEDURE pg_temp.serves(VARIADIC columns text[])
LANGUAGE plpgsql AS $$
DECLARE
    i regclass;
    c text;
BEGIN
    FOR i IN SELECT indexrelid FROM pg_index
        WHERE indrelid = 'jobs'::regclass AND NOT indisprimary
    LOOP
        EXECUTE 'DROP INDEX ' || i;
    END LOOP;
    FOREACH c IN ARRAY columns LOOP
        EXECUTE 'CREATE INDEX ON jobs ' || c;
    END LOOP;
    RAISE INFO '%', coalesce(pg_temp.missing('jobs'), 'nothing is missing');
END $$;
SELECT job_table_reset('jobs');
SELECT job_table_set('jobs', order_by => 'pr DESC, id',
    ready_when => 'NOT blocked');
CALL pg_temp.serves('(status, pr DESC, id)');
CALL pg_temp.serves('(status, pr, id DESC)');
CALL pg_temp.serves('(status DESC, pr DESC, id, due) INCLUDE (at)');
CALL pg_temp.serves($$(pr DESC, id) WHERE status = '0'$$);
CALL pg_temp.serves($$(pr DESC, id) WHERE status = '0'$$,
    $$(sid) WHERE status = '2'$$);
CALL pg_temp.serves($$(pr DESC, id) WHERE NOT blocked AND status = '0'$$,
    $$(pr) WHERE status = '2' AND sid IS NOT NULL$$);
CALL pg_temp.serves($$(pr, id DESC) WHERE status <> '1'$$, '(sid, status)');
CALL pg_temp.serves($$(pr DESC, id) WHERE status = ANY ('{0,2,3}')$$,
    $$(sid) WHERE status <> '1'$$);
CALL pg_temp.serves('(pr DESC, id)');
CALL pg_temp.serves('(status)');
CALL pg_temp.serves('(status, pr, id)');
CALL pg_temp.serves('(status, pr DESC NULLS LAST, id)');
CALL pg_temp.serves('(status, pr DESC)');
CALL pg_temp.serves($$(pr DESC, id) WHERE status = '1'$$);
CALL pg_temp.serves('(pr DESC, id) WHERE NOT blocked');
CALL pg_temp.serves($$(pr DESC, id) WHERE status = '0' AND due = '-infinity'$$);
CALL pg_temp.serves($$(pr DESC, id) WHERE status = '0'$$,
    '(sid) WHERE sid IS NOT NULL');
CALL pg_temp.serves('(lower(status), pr DESC, id)');
CALL pg_temp.serves('(status text_pattern_ops, pr DESC, id)');
SELECT job_table_reset('jobs');
SELECT job_table_set('jobs', key_column => 'grp');
CALL pg_temp.serves('(status, grp, id)');
CALL pg_temp.serves('(grp, status DESC, id)');
CALL pg_temp.serves($$(grp, id) WHERE status = '0'$$,
    $$(grp) WHERE status = '2'$$);
CALL pg_temp.serves($$(grp, id) WHERE status <> '1'$$);
CALL pg_temp.serves('(grp, id)');
CALL pg_temp.serves('(grp, status)');
DROP TABLE jobs;

-- Names and values that need quotes, types of all sorts.
CREATE SCHEMA "Tl S";
CREATE TABLE "Tl S"."J""obs" ("Id" uuid PRIMARY KEY, "order" text COLLATE "C",
    "St" varchar(9), "select" varchar);
INSERT INTO "Tl S"."J""obs" SELECT lpad(i::text, 32, '0')::uuid, i % 9,
    CASE pg_temp.status(i) WHEN '0' THEN 'it''s' ELSE 'done' END
FROM generate_series(1, 2000) i;
SELECT job_table_set('"Tl S"."J""obs"', status_column => 'St',
    sid_column => 'select', ready_status => 'it''s', claimed_status => '\',
    done_status => 'done', failed_status => '"', order_by => '"order"');
CALL pg_temp.make('"Tl S"."J""obs"');

CREATE TYPE "Tl S"."State" AS ENUM ('0', '1', '2');
CREATE DOMAIN "Tl S".state AS int CHECK (VALUE >= 0);
CREATE PROCEDURE pg_temp.try_type(type text, kind text DEFAULT '')
LANGUAGE plpgsql AS $$
BEGIN
    DROP TABLE IF EXISTS jobs;
    EXECUTE format('CREATE %s TABLE jobs (id int PRIMARY KEY, pr int,
        status %s, sid text)', kind, type);
    EXECUTE format('INSERT INTO jobs
        SELECT i, i %% 7, pg_temp.status(i)::%s
        FROM generate_series(1, 2000) i', type);
    PERFORM job_table_set('jobs', order_by => 'pr');
    COMMIT;
    RAISE INFO '%', type;
    CALL pg_temp.make('jobs');
END $$;
SET client_min_messages = warning;
CALL pg_temp.try_type('"Tl S"."State"');
CALL pg_temp.try_type('"Tl S".state');
CALL pg_temp.try_type('char(2)');
CALL pg_temp.try_type('"char"');
CALL pg_temp.try_type('xid');
CALL pg_temp.try_type('text', 'UNLOGGED');
CALL pg_temp.try_type('text');

-- Who sees only some of the rows starts at the beginning, whatever the order.
DROP TABLE jobs;
CREATE TABLE jobs (id int PRIMARY KEY, status text, sid text);
INSERT INTO jobs SELECT i, pg_temp.status(i) FROM generate_series(1, 2000) i;
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON jobs USING (id > 0);
CREATE ROLE tl_worker;
GRANT SELECT, UPDATE ON jobs TO tl_worker;
SET ROLE tl_worker;
SELECT count(*) FROM claim_jobs(NULL::jobs, 'w', 1);
RESET ROLE;
GRANT tl_worker TO CURRENT_USER;
ALTER TABLE jobs OWNER TO tl_worker;
ALTER TABLE jobs FORCE ROW LEVEL SECURITY;
GRANT CREATE ON SCHEMA public TO tl_worker;
SET ROLE tl_worker;
CALL pg_temp.make('jobs');
RESET ROLE;

-- A function of the owner's runs as the owner, who looks at the view is none
-- of its business.
SET ROLE tl_worker;
CREATE FUNCTION tl_planted() RETURNS text IMMUTABLE
LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'run by %', current_user;
    RETURN '0';
END $$;
CREATE INDEX ON jobs (id) WHERE status = tl_planted();
DROP INDEX jobs_status_id_idx;
RESET ROLE;
SET client_min_messages = notice;
SELECT pg_temp.missing('jobs');
SET client_min_messages = warning;
DROP TABLE jobs;
DROP FUNCTION tl_planted;

-- Partitions: of the parent, for all of them.
CREATE TABLE jobs (id int NOT NULL, day date, pr int, status text, sid text,
    PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
CREATE TABLE jobs_1 PARTITION OF jobs FOR VALUES FROM ('2020-1-1')
    TO ('2020-2-1');
CREATE TABLE jobs_2 (sid text, gone int, status text, pr int, id int NOT NULL,
    day date NOT NULL);
ALTER TABLE jobs_2 DROP gone;
ALTER TABLE jobs ATTACH PARTITION jobs_2 FOR VALUES FROM ('2020-2-1')
    TO ('2020-3-1');
INSERT INTO jobs SELECT i, '2020-1-1'::date + i % 60, i % 7, pg_temp.status(i)
FROM generate_series(1, 2000) i;
SELECT job_table_set('jobs', id_column => 'id');
CALL pg_temp.make('jobs', in_key_order => true);
SELECT job_table_set('jobs', order_by => 'pr');
CALL pg_temp.make('jobs');
-- One for each does as well; a new one that has none is missed.
DROP INDEX jobs_status_pr_id_idx;
CREATE INDEX ON jobs_1 (status, pr, id);
SELECT pg_temp.missing('jobs');
CREATE INDEX ON jobs_2 (status, pr, id);
SELECT pg_temp.missing('jobs');
CREATE TABLE jobs_3 PARTITION OF jobs FOR VALUES FROM ('2020-3-1')
    TO ('2020-4-1');
SELECT pg_temp.missing('jobs');
DROP TABLE jobs;

-- By status, and two of them at once.
CREATE TABLE jobs (id int NOT NULL, pr int, status text, sid text)
    PARTITION BY LIST (status);
CREATE TABLE jobs_1 PARTITION OF jobs FOR VALUES IN ('1');
CREATE TABLE jobs_2 PARTITION OF jobs DEFAULT;
INSERT INTO jobs SELECT i, i % 7, pg_temp.status(i)
FROM generate_series(1, 2000) i;
SELECT job_table_set('jobs', id_column => 'id', order_by => 'pr DESC');
CALL pg_temp.make('jobs');
DROP TABLE jobs;

-- What has become of a table is no error of the view's.
CREATE TABLE jobs (id int PRIMARY KEY, pr int, status text, sid text);
SELECT job_table_set('jobs', order_by => 'pr');
ALTER TABLE jobs DROP pr;
SELECT pg_temp.missing('jobs');
ALTER TABLE jobs DROP status;
SELECT order_by, missing_index FROM job_tables WHERE job_table = 'jobs'::regclass;
DROP TABLE jobs;
SELECT tokenlock_missing_index('pg_class'), tokenlock_missing_index('job_tables'),
    tokenlock_missing_index(NULL), tokenlock_missing_index(0);

-- A claim that read very much says so once.
CREATE TABLE jobs (id int PRIMARY KEY, pr int, status text, sid text)
    WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO jobs SELECT i, i % 7, CASE WHEN i % 100 = 7 THEN '0' ELSE '1' END
FROM generate_series(1, 12000) i;
SELECT job_table_set('jobs', order_by => 'pr');
\set VERBOSITY terse
SELECT id FROM claim_jobs(NULL::jobs, 'a', 2);
SELECT id FROM claim_jobs(NULL::jobs, 'b', 1);
DROP TABLE jobs;
CREATE TABLE jobs (id int PRIMARY KEY, grp int, status text, sid text)
    WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO jobs SELECT i, i % 7, CASE WHEN i % 100 = 7 THEN '0' ELSE '1' END
FROM generate_series(1, 12000) i;
SELECT job_table_set('jobs', key_column => 'grp');
SELECT id FROM claim_jobs(NULL::jobs, 'a', 2);
DROP TABLE jobs;
DROP SCHEMA "Tl S" CASCADE;
REVOKE CREATE ON SCHEMA public FROM tl_worker;
DROP ROLE tl_worker;
