-- job_table_set, job_table_reset and the view job_tables.  P84, P85, P94
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

-- An existing table with other names and values.
CREATE TYPE task_state AS ENUM ('new', 'running', 'ok', 'gave up');
CREATE TABLE tasks (number int PRIMARY KEY, state task_state DEFAULT 'new',
    worker varchar(20), note text);
INSERT INTO tasks SELECT generate_series(1, 12);
SELECT pg_temp.try($$SELECT number FROM claim_jobs(NULL::tasks, 'a')$$);
SELECT job_table_set('tasks', status_column => 'state',
    sid_column => 'worker', ready_status => 'new',
    claimed_status => 'running', done_status => 'ok',
    failed_status => 'gave up');
SELECT * FROM claim_jobs(NULL::tasks, 'a', 3);
SELECT finish_jobs('tasks', 'a', ARRAY[1]);
SELECT release_jobs('tasks', 'a', ARRAY[2]);
SELECT number FROM claim_jobs(NULL::tasks, 'b', 2);
SELECT * FROM tasks WHERE number < 6 ORDER BY number;

-- NULL leaves a setting as it is; what is set later adds to it.
SELECT job_table_set('tasks', ttl => '1 min');
SELECT expires_at - renewed_at < '2 min' AS table_ttl FROM job_workers
WHERE job_table = 'tasks'::regclass AND sid = 'b';
SELECT number FROM claim_jobs(NULL::tasks, 'b', 2);
SELECT expires_at - renewed_at < '2 min' AS table_ttl FROM job_workers
WHERE job_table = 'tasks'::regclass AND sid = 'b';
SELECT number FROM claim_jobs(NULL::tasks, 'b', 2, ttl => '10 min');
SELECT expires_at - renewed_at > '9 min' AS own_ttl FROM job_workers
WHERE job_table = 'tasks'::regclass AND sid = 'b';
\x on
SELECT * FROM job_tables WHERE job_table = 'tasks'::regclass;
\x off

-- A pause stops all claims; done still works.
SELECT job_table_set('tasks', paused => true);
SELECT number FROM claim_jobs(NULL::tasks, 'c', 3);
SELECT number FROM claim_jobs(NULL::tasks, 'b', 3, done => ARRAY[2]);
SELECT state FROM tasks WHERE number = 2;
SELECT job_table_set('tasks', paused => false);
SELECT number FROM claim_jobs(NULL::tasks, 'c', 3);

-- A setting goes, then all.
SELECT job_table_reset('tasks', 'ttl');
SELECT ttl, status_column FROM job_tables WHERE job_table = 'tasks'::regclass;
SELECT job_table_reset('tasks');
SELECT status_column, claimed, finished FROM job_tables
WHERE job_table = 'tasks'::regclass;
SELECT count(*) FROM tokenlock_job_settings
WHERE job_table = 'tasks'::regclass;
SELECT pg_temp.try($$SELECT number FROM claim_jobs(NULL::tasks, 'a')$$);

-- Checked at once, and nothing is changed by an error.
SELECT pg_temp.try($$SELECT job_table_set('tasks')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'stat')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => '')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'note',
    sid_column => 'note')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'state',
    sid_column => 'worker', ready_status => 'new')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'state',
    sid_column => 'worker', ready_status => 'new', claimed_status => 'new',
    done_status => 'ok')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'state',
    sid_column => 'worker', ready_status => 'new', done_status => 'ok',
    claimed_status => 'running', failed_status => 'lost')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'note',
    sid_column => 'worker', id_column => 'worker')$$);
SELECT pg_temp.try($$SELECT job_table_set('tasks', status_column => 'note',
    sid_column => 'worker', ttl => '0')$$);
SELECT pg_temp.try($$SELECT job_table_set(NULL)$$);
SELECT pg_temp.try($$SELECT job_table_set('no_such')$$);
SELECT pg_temp.try($$SELECT job_table_set(0::regclass)$$);
SELECT pg_temp.try($$SELECT job_table_set('job_tables')$$);
SELECT pg_temp.try($$SELECT job_table_reset('tasks', 'color')$$);
SELECT pg_temp.try($$SELECT job_table_reset(NULL)$$);
SELECT count(*) FROM tokenlock_job_settings
WHERE job_table = 'tasks'::regclass;

-- A setting that is rolled back, in a savepoint too, was never there.
SELECT job_table_set('tasks', status_column => 'state',
    sid_column => 'worker', ready_status => 'new',
    claimed_status => 'running', done_status => 'ok');
BEGIN;
SELECT job_table_set('tasks', paused => true);
SELECT count(*) FROM claim_jobs(NULL::tasks, 'd', 1);
SAVEPOINT s;
SELECT job_table_set('tasks', paused => false);
SELECT count(*) FROM claim_jobs(NULL::tasks, 'd', 1);
ROLLBACK TO s;
SELECT count(*) FROM claim_jobs(NULL::tasks, 'd', 1);
ROLLBACK;
SELECT count(*) FROM claim_jobs(NULL::tasks, 'd', 1);
BEGIN READ ONLY;
SELECT job_table_set('tasks', paused => true);
ROLLBACK;

-- The owner, and nobody else.
CREATE ROLE regress_jobs_owner;
CREATE ROLE regress_jobs_other;
ALTER TABLE tasks OWNER TO regress_jobs_owner;
GRANT ALL ON tasks TO regress_jobs_other;
SET ROLE regress_jobs_other;
SELECT job_table_set('tasks', paused => true);
SELECT job_table_reset('tasks');
SELECT paused FROM job_tables WHERE job_table = 'tasks'::regclass;
DELETE FROM tokenlock_job_settings;
SET ROLE regress_jobs_owner;
SELECT job_table_set('tasks', paused => true);
RESET ROLE;
SELECT paused FROM job_tables WHERE job_table = 'tasks'::regclass;
SELECT job_table_set('tasks', paused => false);

-- Columns that go or get other names: errors that say so.
ALTER TABLE tasks RENAME COLUMN worker TO who;
SELECT pg_temp.try($$SELECT number FROM claim_jobs(NULL::tasks, 'a')$$);
SELECT job_table_set('tasks', sid_column => 'who');
SELECT number FROM claim_jobs(NULL::tasks, 'a', 1);
ALTER TABLE tasks ALTER COLUMN state DROP DEFAULT,
    ALTER COLUMN state TYPE varchar(4) USING left(state::text, 4);
SELECT pg_temp.try($$SELECT number FROM claim_jobs(NULL::tasks, 'a')$$);
SELECT job_table_set('tasks', claimed_status => 'runn');
SELECT number, state FROM claim_jobs(NULL::tasks, 'a', 1);
ALTER TABLE tasks RENAME TO tasks_renamed;
SELECT number, state FROM claim_jobs(NULL::tasks_renamed, 'a', 1);

-- They go with the table.
DROP TABLE tasks_renamed;
SELECT count(*) FROM tokenlock_job_settings s
WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.job_table);

-- A key of several columns: the id is named, with or without an index.
CREATE TABLE t2 (tenant int, id int, status text DEFAULT '0', sid text,
    PRIMARY KEY (tenant, id));
INSERT INTO t2 SELECT i % 2, i FROM generate_series(1, 5) i;
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::t2, 'a')$$);
SELECT job_table_set('t2', id_column => 'id');
SELECT * FROM claim_jobs(NULL::t2, 'a', 3);
SELECT finish_jobs('t2', 'a', ARRAY[2]);
CREATE INDEX ON t2 (id);
SELECT * FROM claim_jobs(NULL::t2, 'b', 3);
SELECT finish_jobs('t2', 'b', ARRAY[5, 4]);
SELECT release_jobs('t2', 'a');

-- Another id: what was kept of the first one is not mixed up with it.
CREATE TABLE two_ids (id int PRIMARY KEY, other int NOT NULL UNIQUE,
    status text DEFAULT '0', sid text);
INSERT INTO two_ids SELECT i, 100 - i FROM generate_series(1, 9) i;
SELECT id, other FROM claim_jobs(NULL::two_ids, 'a', 3);
SELECT job_table_set('two_ids', id_column => 'other');
SELECT id, other FROM claim_jobs(NULL::two_ids, 'b', 2);
SELECT id, other FROM claim_jobs(NULL::two_ids, 'a', 4);
SELECT finish_jobs('two_ids', 'a', ARRAY[97, 98, 99, 1]);
SELECT job_table_reset('two_ids');
SELECT id, other FROM claim_jobs(NULL::two_ids, 'b', 3);

-- Partitioned by time, and by the status, where rows move.
CREATE TABLE by_time (id bigint NOT NULL, at timestamptz NOT NULL,
    status text DEFAULT '0', sid text, PRIMARY KEY (id, at))
PARTITION BY RANGE (at);
CREATE TABLE by_time_1 PARTITION OF by_time
    FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE by_time_2 PARTITION OF by_time
    FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
INSERT INTO by_time
SELECT i, '2026-01-15'::timestamptz + (i % 2) * interval '1 month'
FROM generate_series(1, 8) i;
SELECT job_table_set('by_time', id_column => 'id');
SELECT id FROM claim_jobs(NULL::by_time, 'a', 5);
SELECT finish_jobs('by_time', 'a', ARRAY[1, 2]);
SELECT release_jobs('by_time', 'a', ARRAY[4]);
SELECT id FROM claim_jobs(NULL::by_time, 'b', 5);
-- An id that is in several partitions is not one.
INSERT INTO by_time VALUES (9, '2026-01-15', '1'), (9, '2026-02-15', '0');
SELECT pg_temp.try($$SELECT id FROM claim_jobs(NULL::by_time, 'c', 5)$$);

CREATE TABLE by_status (id bigint NOT NULL, status text NOT NULL DEFAULT '0',
    sid text) PARTITION BY LIST (status);
CREATE TABLE by_status_0 PARTITION OF by_status FOR VALUES IN ('0');
CREATE TABLE by_status_2 PARTITION OF by_status FOR VALUES IN ('2');
CREATE TABLE by_status_x PARTITION OF by_status DEFAULT;
CREATE INDEX ON by_status (id);
INSERT INTO by_status SELECT generate_series(1, 6);
SELECT job_table_set('by_status', id_column => 'id');
SELECT id FROM claim_jobs(NULL::by_status, 'a', 3);
SELECT finish_jobs('by_status', 'a', ARRAY[1]);
SELECT release_jobs('by_status', 'a', ARRAY[2]);
SELECT tableoid::regclass, * FROM by_status ORDER BY id;

-- P84: names that break statements, or get into them.
CREATE SCHEMA "Job-Tabl;e";
CREATE TABLE "Job-Tabl;e"."x""y" ("Order" bigint PRIMARY KEY,
    "select" text DEFAULT E'it''s\\0', "Who" text);
INSERT INTO "Job-Tabl;e"."x""y" SELECT generate_series(1, 6);
SELECT job_table_set('"Job-Tabl;e"."x""y"', status_column => 'select',
    sid_column => 'Who', ready_status => E'it''s\\0');
SELECT * FROM claim_jobs(NULL::"Job-Tabl;e"."x""y", E'a''b\\c', 3);
SELECT finish_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c', ARRAY[1]);
SELECT release_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c', ARRAY[2]);
SELECT release_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c');
SELECT renew_jobs('"Job-Tabl;e"."x""y"', E'a''b\\c');
SELECT * FROM "Job-Tabl;e"."x""y" ORDER BY 1;

SET client_min_messages = warning;
DROP SCHEMA "Job-Tabl;e" CASCADE;
DROP TABLE t2, two_ids, by_time, by_status;
DROP TYPE task_state;
DROP ROLE regress_jobs_owner, regress_jobs_other;
SELECT count(*) FROM tokenlock_job_settings;
