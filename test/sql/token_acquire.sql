-- CALL token_acquire: arguments, answers, and where it may not run.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TABLE acquired (i int);
-- Its answer is a row; the fence is shown as what it is compared with.
CALL token_acquire('a') \gset
SELECT :'granted' AS granted, :fence = token_fence('a') AS fence,
    :{?expires_at} AS has_end;
CALL token_acquire('a') \gset
SELECT :'granted' AS again, :fence = token_fence('a') AS fence;
CALL token_acquire('l', owner => 'w1', ttl => '1h') \gset
SELECT :'granted' AS granted, :fence = token_fence('l', owner => 'w1') AS fence,
    :'expires_at'::timestamptz > now() + '59min' AS an_hour;
CALL token_acquire('p', capacity => 2, owner => 'w1') \gset
CALL token_acquire('p', capacity => 2, owner => 'w2') \gset
SELECT :'granted' AS second_permit;
CALL token_acquire('s', shared => true, owner => 'w1') \gset
CALL token_acquire('s', shared => true, owner => 'w2') \gset
SELECT :'granted' AS second_shared;
SELECT name, owner, scope, shared FROM token_holders ORDER BY name, owner;
-- Refused: the wait was too short.
CALL token_acquire('a', wait => '0', owner => 'w2');
CALL token_acquire('a', wait => '20ms', owner => 'w2');
CALL token_acquire('p', wait => '20ms', capacity => 2);
CALL token_acquire('s', wait => '20ms');
-- In a procedure and in a DO block that have done nothing yet, in a loop too.
CREATE PROCEDURE acquire_three() LANGUAGE plpgsql AS $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	FOR i IN 1..3 LOOP
		CALL token_acquire('x' || i, granted => granted, fence => fence,
			expires_at => expires_at);
		RAISE NOTICE '% %', granted, fence = token_fence('x' || i);
		CALL token_acquire('a', wait => '10ms', owner => 'w2',
			granted => granted, fence => fence, expires_at => expires_at);
		RAISE NOTICE '% % %', granted, fence, expires_at;
	END LOOP;
END $$;
CALL acquire_three();
DO 'BEGIN CALL acquire_three(); END';
SELECT token_put_all(), token_put_all(owner => 'w1'), token_put_all(owner => 'w2');

-- In a transaction block, even when the token is free.
BEGIN;
INSERT INTO acquired VALUES (1);
CALL token_acquire('x');
COMMIT;
BEGIN;
CALL token_acquire('x');
ROLLBACK;
\set AUTOCOMMIT off
CALL token_acquire('x');
ROLLBACK;
\set AUTOCOMMIT on
-- In a function.
CREATE FUNCTION acquire_inside() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
SELECT acquire_inside();
-- In a DO block after an INSERT: it must not be committed.
DO $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	INSERT INTO acquired VALUES (2);
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
-- After a NOTIFY, which would be sent.
DO $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	NOTIFY acquired;
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
-- The same when it would have to wait, and when somebody catches the error.
SELECT token_get('y', owner => 'w1');
DO $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	INSERT INTO acquired VALUES (3);
	CALL token_acquire('y', granted => granted, fence => fence, expires_at => expires_at);
END $$;
-- In a block with an EXCEPTION clause, before and after work.
DO $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	BEGIN
		CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
	EXCEPTION WHEN active_sql_transaction THEN
		RAISE NOTICE 'refused: %', SQLERRM;
	END;
	INSERT INTO acquired VALUES (4);
	BEGIN
		CALL token_acquire('y', granted => granted, fence => fence, expires_at => expires_at);
	EXCEPTION WHEN active_sql_transaction THEN
		RAISE NOTICE 'refused: %', SQLERRM;
	END;
	RAISE EXCEPTION 'all of it is undone';
END $$;
-- With a transaction's token, or a guard: ending the transaction would end it.
DO $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	PERFORM token_get('t', scope => 'transaction');
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
DO $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	PERFORM token_guard('y', owner => 'w1');
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
-- In a procedure that is SECURITY DEFINER, or has settings of its own.
CREATE PROCEDURE acquire_definer() LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
CALL acquire_definer();
CREATE PROCEDURE acquire_set() LANGUAGE plpgsql SET work_mem = '1MB' AS $$
DECLARE
	granted boolean; fence bigint; expires_at timestamptz;
BEGIN
	CALL token_acquire('x', granted => granted, fence => fence, expires_at => expires_at);
END $$;
CALL acquire_set();
-- Behind a savepoint, of course; and as the second statement of a string.
BEGIN;
SAVEPOINT a;
CALL token_acquire('x');
ROLLBACK;
INSERT INTO acquired VALUES (5)\; CALL token_acquire('x');
SELECT 1 AS one\; CALL token_acquire('x');
\set VERBOSITY sqlstate
BEGIN;
CALL token_acquire('x');
ROLLBACK;
SELECT acquire_inside();
\set VERBOSITY default
-- 'x' is free, and nothing was committed.
SELECT name, owner FROM token_holders;
SELECT * FROM acquired;
SELECT token_put('y', owner => 'w1');

-- An error of the wait leaves nothing.
SELECT token_get('a', owner => 'w1');
SET lock_timeout = '50ms';
CALL token_acquire('a');
RESET lock_timeout;
SET statement_timeout = '50ms';
CALL token_acquire('a');
RESET statement_timeout;
SELECT name, owner FROM token_holders;
SELECT * FROM token_waiters;
SELECT token_put('a', owner => 'w1');

-- Arguments.
CALL token_acquire(NULL);
CALL token_acquire('');
CALL token_acquire('a', wait => '-1s');
CALL token_acquire('a', ttl => '0');
CALL token_acquire('a', owner => '');
CALL token_acquire('a', capacity => 0);
CALL token_acquire('a', capacity => 2, shared => true);
SET tokenlock.session_tokens = off;
CALL token_acquire('a');
CALL token_acquire('a', owner => 'w1') \gset
SELECT :'granted' AS granted;
RESET tokenlock.session_tokens;
SELECT token_put('a', owner => 'w1');
-- The isolation level of the caller does not matter outside of a block.
SET default_transaction_isolation = 'serializable';
CALL token_acquire('a', ttl => '100ms', owner => 'w1') \gset
CALL token_acquire('a') \gset
SELECT :'granted' AS granted, :fence = token_fence('a') AS fence;
SET default_transaction_read_only = on;
CALL token_acquire('a', wait => '10ms', owner => 'w1');
RESET default_transaction_read_only;
RESET default_transaction_isolation;
SELECT token_put('a');
SELECT proname, prokind, prosecdef, proconfig FROM pg_proc WHERE proname = 'token_acquire';
DROP TABLE acquired;
DROP FUNCTION acquire_inside();
DROP PROCEDURE acquire_three(), acquire_definer(), acquire_set();
SELECT * FROM token_holders;
