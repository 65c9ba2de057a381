-- Transactions, savepoints, triggers, rights and row security.  P83, P97
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TABLE jobs (id int PRIMARY KEY, status text DEFAULT '0', sid text,
    pr int DEFAULT 0);
INSERT INTO jobs SELECT generate_series(1, 30);
CREATE TABLE result (id int);

-- P97: the work and its finish are one.
SELECT id FROM claim_jobs(NULL::jobs, 'w1', 1);
BEGIN;
INSERT INTO result VALUES (1);
SELECT finish_jobs('jobs', 'w1', ARRAY[1]);
ROLLBACK;
SELECT count(*) FROM result;
SELECT id, status, sid FROM jobs WHERE id = 1;
SELECT renew_jobs('jobs', 'w1');
BEGIN;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 1);
ROLLBACK;
SELECT id FROM claim_jobs(NULL::jobs, 'w3', 1);
SELECT sid, claimed FROM job_workers WHERE job_table = 'jobs'::regclass
ORDER BY 1;

-- Savepoints.
BEGIN;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 2);
SAVEPOINT s;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 4);
SELECT finish_jobs('jobs', 'w4', ARRAY[3, 5]);
ROLLBACK TO s;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 1);
SAVEPOINT t;
SELECT release_jobs('jobs', 'w4', ARRAY[4]);
RELEASE t;
COMMIT;
SELECT sid, claimed FROM job_workers WHERE sid = 'w4'
    AND job_table = 'jobs'::regclass;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w5', 3);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 5);

-- An error that is caught gives the rows back, too.
DO $$
BEGIN
    PERFORM claim_jobs(NULL::jobs, 'w6', 3);
    PERFORM 1 / 0;
EXCEPTION WHEN division_by_zero THEN
END $$;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w7', 3);

-- Finishing and claiming again and again in one transaction, undone at once.
BEGIN;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w7', 2,
    done => (SELECT array_agg(id) FROM jobs WHERE sid = 'w7'));
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w7', 2,
    done => (SELECT array_agg(id) FROM jobs WHERE sid = 'w7'));
ROLLBACK;
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w7', 3);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w8', 2);
SELECT release_jobs('jobs', sid) FROM job_workers
WHERE job_table = 'jobs'::regclass AND claimed > 0 ORDER BY sid;
SELECT count(*) FILTER (WHERE status = '0'), count(*) FROM jobs;

-- P83: a trigger that says no is heard, and so is one that says more.
CREATE FUNCTION even_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id % 2 = 1 THEN
        RETURN NULL;
    END IF;
    NEW.pr := 7;
    RETURN NEW;
END $$;
CREATE TRIGGER even_only BEFORE UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION even_only();
SELECT id, sid, pr FROM claim_jobs(NULL::jobs, 'w1', 4);
SELECT id, sid, status FROM jobs WHERE id < 5 ORDER BY id;
SELECT claimed FROM job_workers
WHERE job_table = 'jobs'::regclass AND sid = 'w1';
DROP TRIGGER even_only ON jobs;

-- A heartbeat writes nothing.
CREATE TABLE updates (n int);
CREATE FUNCTION count_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO updates VALUES (1);
    RETURN NULL;
END $$;
CREATE TRIGGER count_update AFTER UPDATE ON jobs
    FOR EACH STATEMENT EXECUTE FUNCTION count_update();
BEGIN;
SELECT renew_jobs('jobs', 'w1');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT count(*) FROM updates;

-- A trigger that itself works on the table.
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = '2' AND NEW.sid = 'outer' THEN
        PERFORM claim_jobs(NULL::jobs, 'inner', 1, resume => false);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER again AFTER UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION again();
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'outer', 2);
SELECT count(*) FROM jobs WHERE sid = 'inner';
DROP TRIGGER again ON jobs;
DROP TRIGGER count_update ON jobs;

-- A trigger that does not let the worker have a row.
CREATE TABLE turned (id int PRIMARY KEY, status text DEFAULT '0', sid text);
INSERT INTO turned SELECT generate_series(1, 5);
CREATE FUNCTION turn_away() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id = 2 THEN
        NEW.status := '0';
    ELSIF NEW.id = 3 THEN
        NEW.sid := 'another';
    ELSIF NEW.id = 4 THEN
        NEW.status := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER turn_away BEFORE UPDATE ON turned
    FOR EACH ROW WHEN (NEW.status = '2') EXECUTE FUNCTION turn_away();
SELECT * FROM claim_jobs(NULL::turned, 'w1', 5);
SELECT * FROM turned ORDER BY id;
SELECT sid, claimed FROM job_workers WHERE job_table = 'turned'::regclass;
DROP TRIGGER turn_away ON turned;
SELECT * FROM claim_jobs(NULL::turned, 'w2', 5);
SELECT finish_jobs('turned', 'w1', ARRAY[1, 2, 3, 4, 5]);
SELECT sid, claimed FROM job_workers WHERE job_table = 'turned'::regclass
ORDER BY sid;

-- Rights are the caller's.
CREATE ROLE tl_job_none;
CREATE ROLE tl_job_reader;
CREATE ROLE tl_job_worker;
GRANT SELECT ON jobs TO tl_job_reader, tl_job_worker;
GRANT UPDATE (status, sid) ON jobs TO tl_job_worker;
SET ROLE tl_job_none;
SELECT claim_jobs(NULL::jobs, 'w');
SELECT finish_jobs('jobs', 'w1', ARRAY[2]);
SELECT renew_jobs('jobs', 'w1');
SET ROLE tl_job_reader;
SELECT claim_jobs(NULL::jobs, 'w');
SELECT release_jobs('jobs', 'w1');
SELECT renew_jobs('jobs', 'w1');
SELECT DISTINCT sid FROM job_workers WHERE job_table = 'jobs'::regclass;
SET ROLE tl_job_worker;
SELECT count(*) FROM claim_jobs(NULL::jobs, 'w', 1);
SELECT renew_jobs('jobs', 'w');
SELECT sid FROM job_workers WHERE job_table = 'jobs'::regclass
ORDER BY sid DESC LIMIT 1;
RESET ROLE;

-- Row security: everybody gets what is theirs, whoever came before.
CREATE TABLE secured (id int PRIMARY KEY, status text DEFAULT '0', sid text,
    tenant name, may_update bool DEFAULT true);
INSERT INTO secured SELECT i, '0', NULL,
    CASE WHEN i % 2 = 0 THEN 'tl_job_reader' ELSE 'tl_job_worker' END
FROM generate_series(1, 10) i;
ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON secured USING (tenant = current_user);
CREATE POLICY not_frozen ON secured AS RESTRICTIVE FOR UPDATE
    USING (may_update);
GRANT SELECT, UPDATE ON secured TO tl_job_reader, tl_job_worker;
SET ROLE tl_job_worker;
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'a', 4);
SET ROLE tl_job_reader;
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'b', 2);
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'b2', 2);
RESET ROLE;
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'c', 1);
SET ROLE tl_job_worker;
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'a2', 4);
SELECT finish_jobs('secured', 'b', ARRAY[2, 4]);
SELECT finish_jobs('secured', 'a', ARRAY[1, 2, 3]);
RESET ROLE;
-- Seen, but not to be updated.
UPDATE secured SET status = '0', may_update = false WHERE id = 3;
SET ROLE tl_job_worker;
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'a3', 4);
RESET ROLE;
UPDATE secured SET status = '1' WHERE id = 3;
SET ROLE tl_job_worker;
SELECT array_agg(id) FROM claim_jobs(NULL::secured, 'a3', 4);
RESET ROLE;

DROP TABLE jobs, result, updates, secured, turned;
DROP FUNCTION turn_away, even_only, count_update, again;
DROP ROLE tl_job_none;
DROP ROLE tl_job_reader;
DROP ROLE tl_job_worker;
