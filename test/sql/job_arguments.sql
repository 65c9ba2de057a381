-- Bad arguments to the job functions, and tables that cannot be claimed from:
-- each an error of its own class, and nothing is changed.  P85, P27
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

CREATE TABLE jobs (id bigint PRIMARY KEY, status text DEFAULT '0', sid text);
INSERT INTO jobs SELECT generate_series(1, 3);

-- The sid.
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, NULL)$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, '')$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, repeat('s', 256))$$);
SELECT pg_temp.try($$SELECT finish_jobs('jobs', '', '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT finish_jobs('jobs', NULL, '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT release_jobs('jobs', '')$$);
SELECT pg_temp.try($$SELECT release_jobs('jobs', NULL, '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT renew_jobs('jobs', '')$$);

-- The batch, resume and the ttl.
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w', -1)$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w', NULL)$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w',
    resume => NULL)$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w', ttl => '0')$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w',
    ttl => '-1 s')$$);
SELECT pg_temp.try($$SELECT renew_jobs('jobs', 'w', '0')$$);

-- Lists of ids.
SELECT pg_temp.try($$SELECT finish_jobs('jobs', 'w', NULL)$$);
SELECT pg_temp.try($$SELECT release_jobs('jobs', 'w', NULL)$$);
SELECT pg_temp.try($$SELECT finish_jobs('jobs', 'w', '{1,NULL}'::int[])$$);
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::jobs, 'w',
    done => '{NULL}'::int[])$$);
SELECT pg_temp.try($$SELECT finish_jobs('jobs', 'w', '{one}'::text[])$$);
SELECT pg_temp.try($$SELECT finish_jobs('jobs', 'w', ARRAY[now()])$$);
SELECT pg_temp.try($$SELECT finish_jobs(NULL, 'w', '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT renew_jobs(NULL, 'w')$$);
SELECT pg_temp.try($$SELECT finish_jobs('no_such', 'w', '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT finish_jobs(0::regclass, 'w', '{1}'::int[])$$);

-- Something else where the row type belongs.
SELECT pg_temp.try($$SELECT claim_jobs('jobs', 'w')$$);
SELECT * FROM claim_jobs('jobs', 'w');
SELECT pg_temp.try($$SELECT claim_jobs(NULL::regclass, 'w')$$);
SELECT pg_temp.try($$SELECT claim_jobs(1, 'w')$$);
CREATE TYPE no_table AS (id int, status text, sid text);
SELECT pg_temp.try($$SELECT claim_jobs(NULL::no_table, 'w')$$);
SELECT pg_temp.try($$SELECT claim_jobs(ROW(1, '0', ''), 'w')$$);

-- Tables that lack something.
CREATE TABLE no_key (id int, status text, sid text);
CREATE TABLE two_keys (tenant int, id int, status text, sid text,
    PRIMARY KEY (tenant, id));
CREATE TABLE no_status (id int PRIMARY KEY, sid text);
CREATE TABLE no_sid (id int PRIMARY KEY, status text);
CREATE TABLE bool_status (id int PRIMARY KEY, status bool, sid text);
CREATE TABLE json_status (id int PRIMARY KEY, status json, sid text);
CREATE VIEW a_view AS SELECT * FROM jobs;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM jobs;
CREATE FOREIGN DATA WRAPPER tl_nowhere;
CREATE SERVER tl_nowhere FOREIGN DATA WRAPPER tl_nowhere;
CREATE FOREIGN TABLE a_foreign_table (id int, status text, sid text)
    SERVER tl_nowhere;
SELECT t, pg_temp.try(format('SELECT claim_jobs(NULL::%I, %L)', t, 'w'))
FROM unnest('{no_key,two_keys,no_status,no_sid,bool_status,json_status,
    a_view,a_matview,a_foreign_table}'::text[]) t;
SELECT pg_temp.try($$SELECT finish_jobs('no_key', 'w', '{1}'::int[])$$);
SELECT pg_temp.try($$SELECT release_jobs('a_view', 'w')$$);
SELECT pg_temp.try($$SELECT renew_jobs('two_keys', 'w')$$);

-- A transaction that is read only.
BEGIN READ ONLY;
SELECT claim_jobs(NULL::jobs, 'w');
ROLLBACK;

SELECT * FROM jobs ORDER BY id;
SELECT count(*) FROM job_workers WHERE job_table = 'jobs'::regclass
    AND claimed > 0;
DROP TABLE jobs, no_key, two_keys, no_status, no_sid, bool_status,
    json_status CASCADE;
DROP TYPE no_table;
DROP FOREIGN DATA WRAPPER tl_nowhere CASCADE;
