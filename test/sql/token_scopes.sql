-- Session and transaction scope, savepoints, failed transactions.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TEMP VIEW held AS
    SELECT name, scope FROM token_holders ORDER BY name COLLATE "C";

-- Transaction scope ends with the transaction, either way.
BEGIN;
SELECT token_get('t', scope => 'transaction');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
BEGIN;
SELECT token_get('t', scope => 'transaction');
ROLLBACK;
SELECT * FROM held;
-- Outside of a block the statement is the transaction.
SELECT token_get('t', scope => 'transaction');
SELECT * FROM held;
-- Another owner in the same transaction is another owner.
BEGIN;
SELECT token_get('t', scope => 'transaction');
SELECT token_get('t', owner => 'w1');
SELECT token_get('t'), token_put('t');
SELECT token_put('t');
COMMIT;

-- Session scope outlives the transaction, either way.
BEGIN;
SELECT token_get('s');
ROLLBACK;
SELECT * FROM held;
SELECT token_put('s');

-- Asking for the longer scope lengthens the hold.
BEGIN;
SELECT granted, answer, fence AS f1
FROM token_request('k', scope => 'transaction') \gset
SELECT granted, answer, fence = :f1 AS same
FROM token_request('k', scope => 'session');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
-- Asking for the shorter one changes nothing.
BEGIN;
SELECT granted, answer, fence = :f1 AS same
FROM token_request('k', scope => 'transaction');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
SELECT token_put('k');
-- What was lengthened stays lengthened, whatever becomes of the rest.
BEGIN;
SELECT token_get('k', scope => 'transaction');
SAVEPOINT a;
SELECT token_get('k');
ROLLBACK TO a;
SELECT * FROM held;
ROLLBACK;
SELECT * FROM held;
SELECT token_put('k');

-- Rollback to an earlier savepoint gives back what was taken after it.
BEGIN;
SELECT token_get('t0', scope => 'transaction');
SAVEPOINT a;
SELECT token_get('t1', scope => 'transaction');
SELECT token_get('t0', scope => 'transaction');
SAVEPOINT b;
SELECT token_get('t2', scope => 'transaction');
SELECT token_get('s2');
RELEASE b;
SELECT * FROM held;
ROLLBACK TO a;
SELECT * FROM held;
SELECT token_get('t1', scope => 'transaction');
RELEASE a;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
SELECT token_put('s2');

-- The same with the subtransactions of a function that catches errors.
BEGIN;
DO $$
BEGIN
    PERFORM token_get('kept', scope => 'transaction');
    BEGIN
        PERFORM token_get('gone', scope => 'transaction');
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        PERFORM token_get('caught', scope => 'transaction');
    END;
END $$;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- A put is not undone.
BEGIN;
SELECT token_get('t', scope => 'transaction');
SAVEPOINT a;
SELECT token_put('t');
ROLLBACK TO a;
SELECT * FROM held;
-- Put and taken again after the savepoint: gone with it.
SELECT token_get('t', scope => 'transaction');
SAVEPOINT b;
SELECT token_put('t'), token_get('t', scope => 'transaction');
ROLLBACK TO b;
SELECT * FROM held;
COMMIT;
-- Put and taken again as the session's: stays.
BEGIN;
SELECT token_get('t', scope => 'transaction');
SELECT token_put('t'), token_get('t');
ROLLBACK;
SELECT * FROM held;
SELECT token_put('t');

-- P10: the transaction failed, the session did not.
BEGIN;
SELECT token_get('x', scope => 'transaction');
SELECT token_get('s');
SELECT 1 / 0;
SELECT token_get('y');
ROLLBACK;
SELECT * FROM held;
SELECT token_put('s');

-- What the failed statement itself took is given back, behind a savepoint too;
-- not by ROLLBACK TO, and not where the error is caught.
BEGIN;
SAVEPOINT a;
SELECT token_get('s');
SELECT token_get('x'), 1 / (random() * 0)::int;
ROLLBACK TO a;
SELECT * FROM held;
SAVEPOINT b;
SELECT token_get('t')\; ROLLBACK TO b;
DO $$
BEGIN
    PERFORM token_get('u');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
END $$;
COMMIT;
SELECT * FROM held;
SELECT token_put_all();

-- A lease neither minds the end of the transaction.
BEGIN;
SELECT token_get('l', ttl => '1h', owner => 'w1');
ROLLBACK;
SELECT * FROM held;
SELECT token_put('l', owner => 'w1');

-- A transaction's hold with a ttl.
BEGIN;
SELECT granted, expires_at IS NOT NULL AS ends
FROM token_request('t', ttl => '1h', scope => 'transaction');
COMMIT;
SELECT * FROM held;

-- Taken at the very end of a transaction, by a deferred trigger.
CREATE TEMP TABLE late (v int);
CREATE FUNCTION pg_temp.late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM token_get('late t', scope => 'transaction'), token_get('late s');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.late();
INSERT INTO late VALUES (1);
SELECT * FROM held;
SELECT token_put('late s');
-- Inside a procedure that commits on its way.
DO $$
BEGIN
    PERFORM token_get('p1', scope => 'transaction');
    COMMIT;
    RAISE NOTICE 'held after the commit: %', (SELECT count(*) FROM token_holders);
    PERFORM token_get('p2', scope => 'transaction');
    ROLLBACK;
    RAISE NOTICE 'held after the rollback: %', (SELECT count(*) FROM token_holders);
    PERFORM token_get('p3');
    COMMIT;
END $$;
SELECT * FROM held;
SELECT token_put('p3');
