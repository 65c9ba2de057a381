-- Claiming, finishing and releasing in one session.  P75, P100
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TABLE jobs (id bigint PRIMARY KEY, pr int, status text DEFAULT '0',
    sid text);
INSERT INTO jobs SELECT i, i * 10 FROM generate_series(1, 40) i;

-- Whole rows, as they are after the claim, in the order of the key.
SELECT * FROM claim_jobs(NULL::jobs, 'w0');
SELECT * FROM claim_jobs(NULL::jobs, 'w1', 3);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', batch => 10);

-- P75: who asks again has the same; nobody grabs everything.
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 10);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 10);
SELECT finish_jobs('jobs', 'w2', ARRAY[5, 6, 7, 8]);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 10);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w2', 4);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w3', 2);

-- Without its own rows.
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w3', 2, resume => false);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w3', 10);

-- Finish and claim in one call; a batch of 0 only finishes.
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w3', 2,
    done => (SELECT array_agg(id) FROM jobs WHERE sid = 'w3'));
SELECT count(*) FROM claim_jobs(NULL::jobs, 'w3', 0, done => ARRAY[29]);
SELECT count(*) FROM claim_jobs(NULL::jobs, 'w3', 0, done => NULL);
SELECT id, status, sid FROM jobs WHERE sid = 'w3' ORDER BY id;

-- Only rows that the worker holds, each counted once.
SELECT finish_jobs('jobs', 'w0', ARRAY[1, 1, 2, 3, 999]);
SELECT finish_jobs('jobs', 'w0', ARRAY[1]);
SELECT finish_jobs('jobs', 'nobody', ARRAY[2, 3]);
SELECT finish_jobs('jobs', 'w1', ARRAY[]::bigint[]);
SELECT finish_jobs('jobs', 'w1', '{}');
SELECT release_jobs('jobs', 'w0', ARRAY[2, 3]);
SELECT id, status, sid FROM jobs WHERE id <= 4 ORDER BY id;

-- Lists of other types.
SELECT finish_jobs('jobs', 'w1', ARRAY['2']);
SELECT finish_jobs('jobs', 'w1', '{3}'::int2[]);
SELECT finish_jobs('jobs', 'w1', ARRAY[4]::numeric[]);

-- What is released is handed out again, before all others.
SELECT release_jobs('jobs', 'w2', ARRAY[10, 9, 9]);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 3);
SELECT release_jobs('jobs', 'w2');
SELECT release_jobs('jobs', 'w2');
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 30);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w5', 30);
SELECT id, status, sid FROM jobs WHERE id IN (9, 10, 11) ORDER BY id;

-- P100: deleted under the worker.
DELETE FROM jobs WHERE id = 9;
SELECT finish_jobs('jobs', 'w4', ARRAY[9, 10]);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w4', 3, resume => true);

-- Nothing left; then one set back by hand, and one that sorts before all.
SELECT count(*) FROM claim_jobs(NULL::jobs, 'w5', 5);
UPDATE jobs SET status = '0', sid = NULL WHERE id = 1;
INSERT INTO jobs VALUES (-7);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w5', 5);
TRUNCATE jobs;
INSERT INTO jobs VALUES (1), (2), (3);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w5', 2);
SELECT array_agg(id) FROM claim_jobs(NULL::jobs, 'w6', 2);

-- Called in the select list, and with nobody who wants the rows.
INSERT INTO jobs SELECT generate_series(11, 20);
SELECT (claim_jobs(NULL::jobs, 'w7', 2)).id;
SELECT count(*) FROM (SELECT claim_jobs(NULL::jobs, 'w8', 3) LIMIT 1) c;
SELECT count(*) FROM jobs WHERE sid = 'w8';

-- The view.
SELECT job_table, sid, claimed, live, renewed_at >= since AS renewed,
    expires_at > now() AS expires
FROM job_workers WHERE job_table = 'jobs'::regclass
    AND sid IN ('w5', 'w6', 'w7', 'w8') ORDER BY sid;
SELECT renew_jobs('jobs', 'w6');
SELECT renew_jobs('jobs', 'new');
SELECT renew_jobs('jobs', 'w6', '1 hour');
SELECT abs(extract(epoch FROM expires_at - renewed_at) - 3600) < 1 AS an_hour
FROM job_workers WHERE job_table = 'jobs'::regclass AND sid = 'w6';
DROP TABLE jobs;
SELECT count(*) FROM job_workers WHERE sid = 'w6';
