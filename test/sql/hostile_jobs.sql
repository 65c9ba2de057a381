-- Job tables that nobody had in mind: each is served or refused, and the
-- server stays up.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- Thousands of narrow rows that become ready behind the place of the claimers.
CREATE TABLE flood (id int PRIMARY KEY, status "char" DEFAULT '0',
    sid "char");
INSERT INTO flood VALUES (100000);
SELECT id FROM claim_jobs(NULL::flood, 'a', 1);
SELECT finish_jobs('flood', 'a', ARRAY[100000]);
INSERT INTO flood SELECT generate_series(1, 6000);
SELECT count(*) FROM claim_jobs(NULL::flood, 'b', 10);

-- Islands that overlap: no row is counted twice, none left out.
CREATE TABLE islands (id int PRIMARY KEY, status text DEFAULT '0', sid text);
INSERT INTO islands SELECT generate_series(1, 7);
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'a', 1);
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'b', 1);
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'a', 1, resume => false);
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'b', 2, resume => false);
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'c', 1);
SELECT release_jobs('islands', 'a'), release_jobs('islands', 'b'),
    release_jobs('islands', 'c');
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'd', 5);
SELECT array_agg(id) FROM claim_jobs(NULL::islands, 'e', 2);

-- Keys that are in no order in the table, and a large batch: without the right
-- bookkeeping this takes very long, and cannot be cancelled.
CREATE TABLE shuffled (id text PRIMARY KEY, status text DEFAULT '0', sid text);
INSERT INTO shuffled SELECT md5(i::text) FROM generate_series(1, 50000) i;
SET statement_timeout = '60s';
SELECT count(*), bool_and(id = expected) FROM
    (SELECT id, n FROM claim_jobs(NULL::shuffled, 'a', 4611686018427387904)
        WITH ORDINALITY AS c(id, status, sid, n)) c
    JOIN (SELECT id, row_number() OVER (ORDER BY id) FROM shuffled)
        AS r(expected, n) USING (n);
RESET statement_timeout;

-- Rules in place of the UPDATE; others beside it do no harm.
CREATE TABLE ruled (id int PRIMARY KEY, status text DEFAULT '0', sid text);
CREATE TABLE ruled_log (id int, status text);
INSERT INTO ruled SELECT generate_series(1, 3);
SELECT * FROM claim_jobs(NULL::ruled, 'a', 2);
CREATE RULE r AS ON UPDATE TO ruled DO INSTEAD NOTHING;
SELECT finish_jobs('ruled', 'a', ARRAY[1]);
SELECT release_jobs('ruled', 'a');
SELECT * FROM claim_jobs(NULL::ruled, 'a', 2);
DROP RULE r ON ruled;
CREATE RULE r AS ON UPDATE TO ruled WHERE NEW.id = 2 DO INSTEAD NOTHING;
SELECT * FROM claim_jobs(NULL::ruled, 'a', 2);
DROP RULE r ON ruled;
CREATE RULE r AS ON UPDATE TO ruled DO ALSO
    INSERT INTO ruled_log VALUES (NEW.id, NEW.status);
SELECT finish_jobs('ruled', 'a', ARRAY[1]);
SELECT release_jobs('ruled', 'a');
SELECT * FROM claim_jobs(NULL::ruled, 'a', 1);
SELECT count(*) FROM ruled_log;

-- A deferred primary key that does not hold yet.
CREATE TABLE twice (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED,
    status text DEFAULT '0', sid text) PARTITION BY RANGE (id);
CREATE TABLE twice_1 PARTITION OF twice FOR VALUES FROM (0) TO (10);
BEGIN;
INSERT INTO twice SELECT 1 FROM generate_series(1, 500);
SELECT count(*) FROM claim_jobs(NULL::twice, 'a', 1);
ROLLBACK;
INSERT INTO twice VALUES (1), (2);
SELECT * FROM claim_jobs(NULL::twice, 'a', 5);

-- Types that would cut a sid, and so make one worker of two.
CREATE TABLE cut (id int PRIMARY KEY, status text DEFAULT '0', sid name);
INSERT INTO cut SELECT generate_series(1, 3);
SELECT id FROM claim_jobs(NULL::cut, repeat('x', 63), 1);
SELECT id FROM claim_jobs(NULL::cut, repeat('x', 63) || 'y', 1);
ALTER TABLE cut ALTER sid TYPE "char" USING NULL;
SELECT id FROM claim_jobs(NULL::cut, 'wb', 1);
ALTER TABLE cut ALTER sid TYPE varchar(3) USING NULL;
SELECT id FROM claim_jobs(NULL::cut, 'abc   ', 1);
SELECT finish_jobs('cut', 'abcd', ARRAY[1]);

-- A worker whose sid the column cannot hold any more stops nobody.
CREATE TABLE retyped (id int PRIMARY KEY, status text DEFAULT '0', sid text);
INSERT INTO retyped SELECT generate_series(1, 3);
SELECT id FROM claim_jobs(NULL::retyped, 'worker-a', 2, ttl => '1us');
UPDATE retyped SET status = '0', sid = NULL;
ALTER TABLE retyped ALTER sid TYPE int USING NULL;
SELECT * FROM claim_jobs(NULL::retyped, '7', 2);
SELECT * FROM claim_jobs(NULL::retyped, '8', 2);

-- The key is one of the columns that a claim changes.
CREATE TABLE selfish (sid text PRIMARY KEY, status text DEFAULT '0');
INSERT INTO selfish VALUES ('x');
SELECT * FROM claim_jobs(NULL::selfish, 'a', 1);

-- Columns that no claim can write to.
CREATE TABLE computed (id int PRIMARY KEY, state text DEFAULT '0', sid text,
    status text GENERATED ALWAYS AS (state) STORED,
    n int GENERATED ALWAYS AS IDENTITY, half int GENERATED ALWAYS AS (id / 2) STORED);
INSERT INTO computed SELECT generate_series(1, 4);
SELECT id FROM claim_jobs(NULL::computed, 'a', 1);
SELECT job_table_set('computed', status_column => 'state', attempts_column => 'n');
SELECT job_table_set('computed', status_column => 'state', key_column => 'half');
SELECT id, half FROM claim_jobs(NULL::computed, 'a', 4);

-- A count that is at its end does not stop all others.
CREATE TABLE counted (id int PRIMARY KEY, status text DEFAULT '0', sid text,
    tries smallint, tries_4 int, tries_8 bigint);
INSERT INTO counted VALUES (1, '0', NULL, 32767, 2147483647, 9223372036854775807);
INSERT INTO counted VALUES (2);
SELECT job_table_set('counted', attempts_column => 'tries');
SELECT id, tries FROM claim_jobs(NULL::counted, 'a', 2);
SELECT job_table_set('counted', attempts_column => 'tries_4');
SELECT id, tries_4 FROM claim_jobs(NULL::counted, 'a', 2);
SELECT job_table_set('counted', attempts_column => 'tries_8');
SELECT id, tries_8 FROM claim_jobs(NULL::counted, 'a', 2);

DROP TABLE computed, counted, flood, islands, shuffled, ruled, ruled_log, twice, cut, retyped, selfish;
