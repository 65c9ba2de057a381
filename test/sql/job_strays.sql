-- Rows that are claimed, but not by a worker that has called: set by hand, or
-- by a program from before.  And states that are written in several ways.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TABLE jobs (id int PRIMARY KEY, status text DEFAULT '0', sid text);
SELECT job_table_set('jobs', ttl => '1 hour');
INSERT INTO jobs SELECT generate_series(1, 9);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w1', 9);
SELECT finish_jobs('jobs', 'w1', ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9]);

-- Those without a sid count as one worker's, which lives for one ttl.
UPDATE jobs SET status = '2', sid = NULL WHERE id IN (2, 5);
UPDATE jobs SET status = '2', sid = '' WHERE id = 3;
UPDATE jobs SET status = '2', sid = 'ghost' WHERE id = 4;
SELECT id FROM claim_jobs(NULL::jobs, 'w2', 9);
SELECT sid, claimed, live, expires_at > now() + '59 min' AS ttl
FROM job_workers WHERE job_table = 'jobs'::regclass AND sid IS DISTINCT FROM 'w1'
    AND sid IS DISTINCT FROM 'w2' ORDER BY sid;
SELECT finish_jobs('jobs', 'w2', ARRAY[2, 3, 4, 5]);

-- Then they are taken over, once.
CREATE TABLE short (id int PRIMARY KEY, status text DEFAULT '0', sid text);
SELECT job_table_set('short', ttl => '20 ms');
INSERT INTO short VALUES (2, '2', NULL), (3, '2', ''), (4, '2', 'ghost'),
    (5, '2', NULL);
CREATE FUNCTION pg_temp.claim(job_table anyelement, n int, worker text)
RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE
    ids int[] := '{}';
BEGIN
    FOR i IN 1 .. 3000 LOOP
        ids := ids || ARRAY(SELECT id FROM claim_jobs(job_table, worker, 9,
            resume => false, ttl => '1 hour'));
        EXIT WHEN cardinality(ids) >= n;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN QUERY SELECT unnest(ids) ORDER BY 1;
END $$;
SELECT * FROM pg_temp.claim(NULL::short, 4, 'w1');
SELECT id FROM claim_jobs(NULL::short, 'w2', 9);
SELECT status, sid, count(*) FROM short GROUP BY 1, 2;
SELECT taken_over FROM job_tables WHERE job_table = 'short'::regclass;
-- One that comes later has a ttl of its own.
SELECT job_table_set('short', ttl => '1 hour');
INSERT INTO short VALUES (1, '2', NULL);
SELECT id FROM claim_jobs(NULL::short, 'w2', 9);
SELECT sid, claimed, live FROM job_workers
WHERE job_table = 'short'::regclass AND sid IS NULL;

-- A sid that is no text, in partitions, and with keys that take turns.
CREATE TABLE parts (id int PRIMARY KEY, account int, status int DEFAULT 0,
    sid int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (3);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (3) TO (9);
SELECT job_table_set('parts', ttl => '20 ms', key_column => 'account');
INSERT INTO parts SELECT i, 7, 2, NULL FROM generate_series(1, 3) i;
INSERT INTO parts VALUES (4, 7);
SELECT * FROM pg_temp.claim(NULL::parts, 3, '1');
SELECT id FROM claim_jobs(NULL::parts, '2', 9);
SELECT finish_jobs('parts', '1', ARRAY[1, 2, 3]);
SELECT id FROM claim_jobs(NULL::parts, '2', 9);

-- A type in which one value can be written in several ways: rows that are
-- ready behind the place of the claimers, and of workers nobody knows.
CREATE TABLE spelled (id int PRIMARY KEY, status numeric DEFAULT 0, sid text);
SELECT job_table_set('spelled', ttl => '20 ms');
INSERT INTO spelled SELECT generate_series(1, 9);
SELECT array_agg(id) FROM claim_jobs(NULL::spelled, 'w1', 9);
SELECT finish_jobs('spelled', 'w1', ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9]);
UPDATE spelled SET status = 0.00 WHERE id = 3;
UPDATE spelled SET status = 1.00 WHERE id = 4;
UPDATE spelled SET status = 2.0, sid = 'ghost' WHERE id = 5;
SELECT id FROM claim_jobs(NULL::spelled, 'w2', 9, ttl => '1 hour');
SELECT * FROM pg_temp.claim(NULL::spelled, 1, 'w3');
CREATE TABLE blanks (id int PRIMARY KEY, status bpchar DEFAULT '0', sid text);
INSERT INTO blanks SELECT generate_series(1, 9);
SELECT array_agg(id) FROM claim_jobs(NULL::blanks, 'w1', 9);
SELECT finish_jobs('blanks', 'w1', ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9]);
UPDATE blanks SET status = '0 ' WHERE id = 3;
SELECT id FROM claim_jobs(NULL::blanks, 'w2', 9);

DROP TABLE jobs, short, parts, spelled, blanks;
