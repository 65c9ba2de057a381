-- Tables of all sorts: types of the key, status and sid, hostile names,
-- partitions, domains, dropped and generated columns.  P84, P85
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- Keys: uuid, text, a pair of types that only look like text.
CREATE TABLE t_uuid (id uuid PRIMARY KEY, status char DEFAULT '0', sid text);
INSERT INTO t_uuid SELECT lpad(i::text, 32, '0')::uuid
FROM generate_series(1, 5) i;
SELECT * FROM claim_jobs(NULL::t_uuid, 'a', 2);
SELECT finish_jobs('t_uuid', 'a', (SELECT array_agg(id) FROM t_uuid));
SELECT release_jobs('t_uuid', 'a', '{}'::uuid[]);
SELECT finish_jobs('t_uuid', 'b',
    ARRAY['00000000-0000-0000-0000-000000000001']);
SELECT * FROM claim_jobs(NULL::t_uuid, 'a', 2);

CREATE TYPE job_state AS ENUM ('0', '1', '2');
CREATE TABLE t_text (id text PRIMARY KEY, status job_state DEFAULT '0',
    sid int);
INSERT INTO t_text SELECT 'job ' || chr(i) FROM generate_series(97, 105) i;
SELECT * FROM claim_jobs(NULL::t_text, '007', 2);
SELECT * FROM claim_jobs(NULL::t_text, '7', 3);
SELECT finish_jobs('t_text', '+7', '{job a,job b}'::text[]);
SELECT claim_jobs(NULL::t_text, 'seven');
SELECT sid, claimed FROM job_workers WHERE job_table = 't_text'::regclass;

-- A sid that pads is one sid all the same.
CREATE TABLE t_char (id int2 PRIMARY KEY, status int4 DEFAULT 0, sid char(6));
INSERT INTO t_char SELECT generate_series(1, 6);
SELECT * FROM claim_jobs(NULL::t_char, 'ab', 2);
SELECT * FROM claim_jobs(NULL::t_char, 'ab ', 3);
SELECT finish_jobs('t_char', 'ab', '{1}'::int[]);
SELECT claim_jobs(NULL::t_char, 'too long');
SELECT sid, claimed FROM job_workers WHERE job_table = 't_char'::regclass;

-- Keys that are too long for shared memory to keep are found as well.
CREATE TABLE t_long (id text PRIMARY KEY, status varchar(1) DEFAULT '0',
    sid varchar(100) NOT NULL DEFAULT '');
INSERT INTO t_long SELECT i || repeat('x', i * 10)
FROM generate_series(1, 9) i;
SELECT left(id, 2) FROM claim_jobs(NULL::t_long, 'a', 3);
SELECT left(id, 2) FROM claim_jobs(NULL::t_long, 'b', 6);
SELECT left(id, 2) FROM claim_jobs(NULL::t_long, 'a', 9);
SELECT release_jobs('t_long', 'b', (SELECT array_agg(id) FROM t_long
    WHERE id LIKE '4%' OR id LIKE '9%'));
SELECT left(id, 2), status, sid FROM t_long WHERE sid = 'b' ORDER BY 1;
SELECT left(id, 2) FROM claim_jobs(NULL::t_long, 'c', 9);
SELECT finish_jobs('t_long', 'c', (SELECT array_agg(id) FROM t_long));

-- Keys of a domain, of a type with a collation of its own.
CREATE DOMAIN job_id AS int CHECK (VALUE > 0);
CREATE TABLE t_domain (id job_id PRIMARY KEY, status text DEFAULT '0',
    sid name);
INSERT INTO t_domain SELECT generate_series(1, 4);
SELECT * FROM claim_jobs(NULL::t_domain, 'a', 2);
SELECT finish_jobs('t_domain', 'a', ARRAY[1, 2]);
CREATE TABLE t_collate (id text COLLATE "C" PRIMARY KEY,
    status text DEFAULT '0', sid text);
INSERT INTO t_collate VALUES ('b'), ('B'), ('a'), ('A');
SELECT id FROM claim_jobs(NULL::t_collate, 'a', 3);
SELECT id FROM claim_jobs(NULL::t_collate, 'b', 3);

-- P84: names that break statements, or get into them.
CREATE SCHEMA "Job-Tabl;e";
CREATE TABLE "Job-Tabl;e"."x""y" ("Order" bigint PRIMARY KEY,
    status text DEFAULT '0', sid text, job text, job_ text);
INSERT INTO "Job-Tabl;e"."x""y" SELECT generate_series(1, 6);
SELECT * FROM claim_jobs(NULL::"Job-Tabl;e"."x""y", E'a''b\\c', 3);
SELECT finish_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c', ARRAY[1]);
SELECT release_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c', ARRAY[2]);
SELECT release_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c');
SELECT renew_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c');
SELECT "Order", status, sid FROM "Job-Tabl;e"."x""y" ORDER BY 1;

-- Operators of the same names that come first are not called.
CREATE SCHEMA tl_planted;
CREATE FUNCTION tl_planted.no(bigint, bigint) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE FUNCTION tl_planted.no(text, text) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE FUNCTION tl_planted.no(tid, tid) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE OPERATOR tl_planted.= (LEFTARG = bigint, RIGHTARG = bigint,
    FUNCTION = tl_planted.no);
CREATE OPERATOR tl_planted.= (LEFTARG = text, RIGHTARG = text,
    FUNCTION = tl_planted.no);
CREATE OPERATOR tl_planted.= (LEFTARG = tid, RIGHTARG = tid,
    FUNCTION = tl_planted.no);
CREATE OPERATOR tl_planted.> (LEFTARG = bigint, RIGHTARG = bigint,
    FUNCTION = tl_planted.no);
CREATE FUNCTION tl_planted.count() RETURNS bigint
LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
SET search_path = tl_planted, pg_catalog, public;
SELECT 'a'::text = 'a'::text;
SELECT "Order" FROM claim_jobs(NULL::"Job-Tabl;e"."x""y", 'w', 2);
SELECT "Order" FROM claim_jobs(NULL::"Job-Tabl;e"."x""y", 'w', 3);
SELECT finish_jobs('"Job-Tabl;e"."x""y"', 'w', ARRAY[2]);
SELECT release_jobs('"Job-Tabl;e"."x""y"', 'w', ARRAY[3]);
SELECT release_jobs('"Job-Tabl;e"."x""y"', 'w');
RESET search_path;

-- Partitions.
CREATE TABLE t_part (id int PRIMARY KEY, status text DEFAULT '0', sid text,
    note text) PARTITION BY RANGE (id);
CREATE TABLE t_part_2 (note text, sid text, gone int, status text DEFAULT '0',
    id int PRIMARY KEY);
ALTER TABLE t_part_2 DROP COLUMN gone;
CREATE TABLE t_part_1 PARTITION OF t_part FOR VALUES FROM (1) TO (10);
ALTER TABLE t_part ATTACH PARTITION t_part_2 FOR VALUES FROM (10) TO (100);
INSERT INTO t_part SELECT i, '0', NULL, 'n' || i FROM generate_series(1, 20) i;
SELECT * FROM claim_jobs(NULL::t_part, 'a', 12);
SELECT finish_jobs('t_part', 'a', ARRAY[12, 1, 10]);
SELECT release_jobs('t_part', 'a', ARRAY[3, 11]);
SELECT array_agg(id) FROM claim_jobs(NULL::t_part, 'b', 4);
UPDATE t_part SET status = '0' WHERE id IN (1, 12);
SELECT array_agg(id) FROM claim_jobs(NULL::t_part, 'c', 20);
CREATE TABLE t_part_3 PARTITION OF t_part FOR VALUES FROM (-10) TO (1);
INSERT INTO t_part VALUES (0);
SELECT * FROM claim_jobs(NULL::t_part, 'd', 20);

-- Children that inherit are tables of their own.
CREATE TABLE t_parent (id int PRIMARY KEY, status text DEFAULT '0', sid text);
CREATE TABLE t_child () INHERITS (t_parent);
INSERT INTO t_parent VALUES (1);
INSERT INTO t_child VALUES (1), (2);
SELECT * FROM claim_jobs(NULL::t_parent, 'a', 5);

-- Dropped, generated and long columns; a domain over the row type.
CREATE TABLE t_cols (gone int, id int PRIMARY KEY, status text DEFAULT '0',
    long text, sid text, pair text GENERATED ALWAYS AS (status || 'x') STORED);
ALTER TABLE t_cols DROP COLUMN gone;
ALTER TABLE t_cols ALTER COLUMN long SET STORAGE EXTERNAL;
ALTER TABLE t_cols ADD COLUMN late int DEFAULT 42;
INSERT INTO t_cols (id, long) SELECT i, repeat('x', 5000)
FROM generate_series(1, 4) i;
SELECT id, status, length(long), sid, pair, late
FROM claim_jobs(NULL::t_cols, 'a', 2);
CREATE DOMAIN d_cols AS t_cols;
SELECT id, length(long), pair, late FROM claim_jobs(NULL::d_cols, 'b', 1);

-- The table changes: what was prepared is prepared anew.
ALTER TABLE t_cols DROP COLUMN late;
ALTER TABLE t_cols ADD COLUMN later int DEFAULT 7;
ALTER TABLE t_cols ALTER COLUMN id TYPE bigint;
SELECT id, later FROM claim_jobs(NULL::t_cols, 'b', 2);
ALTER TABLE t_cols RENAME COLUMN id TO number;
SELECT number, later FROM claim_jobs(NULL::t_cols, 'b', 2);
ALTER TABLE t_cols RENAME TO t_cols_renamed;
SELECT finish_jobs('t_cols_renamed', 'b', ARRAY[3, 4]);
ALTER TABLE t_cols_renamed DROP COLUMN sid CASCADE;
SELECT finish_jobs('t_cols_renamed', 'b', ARRAY[3, 4]);

-- Temporary and unlogged tables.
CREATE TEMP TABLE t_temp (id int PRIMARY KEY, status text DEFAULT '0', sid text);
INSERT INTO t_temp SELECT generate_series(1, 4);
SELECT array_agg(id) FROM claim_jobs(NULL::t_temp, 'a', 3);
UPDATE t_temp SET status = '0' WHERE id = 1;
SELECT array_agg(id) FROM claim_jobs(NULL::t_temp, 'b', 3);
CREATE UNLOGGED TABLE t_unlogged (id int PRIMARY KEY,
    status text DEFAULT '0', sid text);
INSERT INTO t_unlogged SELECT generate_series(1, 4);
SELECT array_agg(id) FROM claim_jobs(NULL::t_unlogged, 'a', 4);
UPDATE t_unlogged SET status = '0' WHERE id = 1;
SELECT array_agg(id) FROM claim_jobs(NULL::t_unlogged, 'b', 3);
UPDATE t_unlogged SET status = '0' WHERE id = 2;
SELECT array_agg(id) FROM claim_jobs(NULL::t_unlogged, 'b', 3);

-- With all that the planner may be told not to do.
CREATE TABLE t_plan (id int PRIMARY KEY, status text DEFAULT '0', sid text);
SET enable_indexscan = off;
SET enable_tidscan = off;
SET enable_nestloop = off;
SET plan_cache_mode = force_custom_plan;
INSERT INTO t_plan SELECT i FROM generate_series(100, 1, -1) i;
SELECT array_agg(id) FROM claim_jobs(NULL::t_plan, 'a', 3);
SELECT array_agg(id) FROM claim_jobs(NULL::t_plan, 'b', 3);
SELECT finish_jobs('t_plan', 'b', ARRAY[6, 5, 4]);
SHOW enable_seqscan;
SHOW enable_indexscan;
RESET ALL;

SET client_min_messages = warning;
DROP SCHEMA "Job-Tabl;e", tl_planted CASCADE;
DROP TABLE t_uuid, t_text, t_char, t_long, t_domain, t_collate, t_part,
    t_parent, t_child, t_cols_renamed, t_temp, t_unlogged, t_plan CASCADE;
DROP DOMAIN IF EXISTS d_cols;
DROP DOMAIN job_id;
DROP TYPE job_state;
