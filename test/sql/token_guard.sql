-- Transactions that commit only while their token is held.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TABLE guarded (i int);

-- The guard returns the fence; alone in its transaction it does no harm.
SELECT token_get('k', owner => 'w1', ttl => '1h');
SELECT token_fence('k', owner => 'w1') AS f1 \gset
SELECT token_guard('k', owner => 'w1') = :f1 AS fence;
BEGIN;
SELECT token_guard('k', owner => 'w1', fence => :f1) = :f1 AS fence;
SELECT token_guard('k', owner => 'w1') = :f1 AS twice;
INSERT INTO guarded VALUES (1);
COMMIT;
-- A lease of the same role may be named by its fence alone.
SELECT token_guard('k', fence => :f1) = :f1 AS fence;

-- Who does not hold it hears so at once.
SELECT token_guard('k');
SELECT token_guard('k', owner => 'w2');
SELECT token_guard('k', owner => 'w1', fence => :f1 + 1);
SELECT token_guard('k', fence => :f1 + 1);
SELECT token_guard('never');
SELECT token_guard('k', owner => 'w2', fence => :f1);

-- The guarding grant is not put in its transaction, in no way.
BEGIN;
SELECT token_guard('k', owner => 'w1') = :f1 AS fence;
SAVEPOINT a;
SELECT token_put('k', owner => 'w1');
ROLLBACK TO a;
SELECT token_put('k', fence => :f1);
ROLLBACK TO a;
SELECT token_put_all(owner => 'w1');
ROLLBACK TO a;
SELECT token_put_all('{k}', owner => 'w1');
ROLLBACK TO a;
INSERT INTO guarded VALUES (2);
COMMIT;
SELECT token_put('k', owner => 'w1');
-- Session tokens are no different; others can be put meanwhile.
SELECT token_get('k'), token_get('l');
SELECT token_fence('k') AS f2 \gset
SELECT :f2 > :f1 AS grown;
BEGIN;
SELECT token_guard('k') = :f2 AS fence;
SELECT token_put('l');
SAVEPOINT a;
SELECT token_put('k');
ROLLBACK TO a;
SELECT token_put_all();
ROLLBACK TO a;
INSERT INTO guarded VALUES (3);
COMMIT;
-- An error that refuses to put all has put none.
SELECT bool_and(token_get('m' || i)) FROM generate_series(1, 20) i;
BEGIN;
SELECT token_guard('k') = :f2 AS fence;
SELECT token_put_all();
ROLLBACK;
SELECT count(*) FROM token_holders;
SELECT token_put_all();

-- A lease that lapsed, whether or not somebody took the token since.
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (4);
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
SAVEPOINT a;
SELECT token_guard('k', owner => 'w1');
ROLLBACK TO a;
COMMIT;
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (5);
SELECT token_renew('k', '1ms', owner => 'w1');
SELECT token_get('k', wait => '10s', owner => 'w2');
COMMIT;
SELECT token_put('k', owner => 'w2');
-- The same owner again, with another grant.
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (6);
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
SELECT answer FROM token_request('k', owner => 'w1', ttl => '1h');
COMMIT;
SELECT token_put('k', owner => 'w1');
\set VERBOSITY sqlstate
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
COMMIT;
SELECT token_guard('k', owner => 'w1');
\set VERBOSITY default
-- A renewal keeps the grant.
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
SELECT token_renew('k', '2h', owner => 'w1');
INSERT INTO guarded VALUES (7);
COMMIT;
SELECT token_put('k', owner => 'w1');
-- A rollback asks for nothing.
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
ROLLBACK;
SELECT array_agg(i ORDER BY i) FROM guarded;

-- Taken and guarded in one transaction, whose end is the token's.
BEGIN;
SELECT token_get('t', scope => 'transaction');
SELECT token_guard('t') = token_fence('t') AS guarded;
INSERT INTO guarded VALUES (8);
COMMIT;
SELECT count(*) FROM token_holders WHERE name = 't';
-- An upgrade is a new grant, which guards on.
SELECT token_get('u', shared => true);
BEGIN;
SELECT token_guard('u') IS NOT NULL AS guarded;
SELECT answer FROM token_request('u');
INSERT INTO guarded VALUES (9);
COMMIT;
SELECT token_put('u');

-- Savepoints: a guard goes with the one it was made in.
SELECT token_get('k', owner => 'w1', ttl => '1h'),
    token_get('l', owner => 'w1', ttl => '1h');
BEGIN;
SAVEPOINT a;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
ROLLBACK TO a;
SELECT token_guard('l', owner => 'w1') IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (10);
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
COMMIT;
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
RELEASE b;
RELEASE a;
INSERT INTO guarded VALUES (11);
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
COMMIT;
SELECT token_get('k', owner => 'w1', ttl => '1h');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
SAVEPOINT a;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
ROLLBACK TO a;
INSERT INTO guarded VALUES (12);
SELECT token_renew('k', '1ms', owner => 'w1'), pg_sleep(0.01);
COMMIT;
-- After a rollback to it, the token can be put.
SELECT token_get('k', owner => 'w1');
BEGIN;
SAVEPOINT a;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
ROLLBACK TO a;
SELECT token_put('k', owner => 'w1');
COMMIT;
DO $$ BEGIN
	PERFORM token_guard('k', owner => 'w1');
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RAISE NOTICE 'not held';
END $$;
SELECT array_agg(i ORDER BY i) FROM guarded WHERE i > 7;

-- A snapshot older than the grant may lack the work of the former holder.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT token_get('k', owner => 'w1');
SELECT token_guard('k', owner => 'w1');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT answer FROM token_request('k', owner => 'w1');
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (13);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT token_get('t', scope => 'transaction');
SELECT token_guard('t');
ROLLBACK;
SELECT token_put('k', owner => 'w1');

-- Several guards, of which one fails.
SELECT token_get('k', owner => 'w1', ttl => '1h'),
    token_get('l', owner => 'w1', ttl => '1h'),
    token_get('m');
BEGIN;
SELECT count(token_guard(name, owner => owner)) FROM token_holders;
INSERT INTO guarded VALUES (14);
SELECT token_renew('l', '1ms', owner => 'w1'), pg_sleep(0.01);
COMMIT;
-- .. leaves nothing pinned.
SELECT token_put('k', owner => 'w1'), token_put('m');
SELECT token_get('k', owner => 'w2'), token_get('m', owner => 'w2');
SELECT token_put('k', owner => 'w2'), token_put('m', owner => 'w2');

-- PREPARE: there is no session that could check at the second commit.
SELECT token_get('k', owner => 'w1');
BEGIN;
SELECT token_guard('k', owner => 'w1') IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (15);
PREPARE TRANSACTION 'tl';
SELECT token_put('k', owner => 'w1');

-- In a read-only transaction, and without one.
SELECT token_get('k');
BEGIN READ ONLY;
SELECT token_guard('k') IS NOT NULL AS guarded;
COMMIT;
SELECT token_put('k');
SELECT array_agg(i ORDER BY i) FROM guarded WHERE i > 12;

-- Bad values.
SELECT token_guard(NULL);
SELECT token_guard('');
SELECT token_guard('k', owner => '');
SELECT token_guard('k', fence => 0);
SELECT token_guard('k', fence => -1);
DROP TABLE guarded;
SELECT * FROM token_holders;
