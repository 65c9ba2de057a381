-- What PUBLIC may do, how to close it, and whose tokens a wrapper takes.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;

DROP ROLE IF EXISTS regress_tl_alice, regress_tl_bob, regress_tl_users;
RESET client_min_messages;
CREATE ROLE regress_tl_users;
CREATE ROLE regress_tl_alice;
CREATE ROLE regress_tl_bob IN ROLE regress_tl_users;

-- Everybody may use tokens, and look.
SET ROLE regress_tl_alice;
SELECT token_get('k'), token_put('k');
SELECT count(*) >= 0 AS holders FROM token_holders;
SELECT count(*) >= 0 AS waiters FROM token_waiters;
SELECT count(*) AS stats FROM token_stats;
SELECT count(*) >= 0 AS names FROM token_stats_by_name;
RESET ROLE;

-- To close it: no function for PUBLIC, all for those who are meant.
BEGIN;
DO $$
DECLARE f regprocedure;
BEGIN
	FOR f IN SELECT objid FROM pg_depend
		WHERE classid = 'pg_proc'::regclass AND deptype = 'e' AND refobjid =
			(SELECT oid FROM pg_extension WHERE extname = 'tokenlock')
		ORDER BY objid
	LOOP
		EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', f);
		EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO regress_tl_users', f);
	END LOOP;
END $$;
SET LOCAL ROLE regress_tl_alice;
SAVEPOINT a;
SELECT token_get('k');
ROLLBACK TO a;
SELECT token_request('k');
ROLLBACK TO a;
SELECT token_get_all('{k}');
ROLLBACK TO a;
SELECT token_break('k', 1);
ROLLBACK TO a;
SELECT * FROM token_holders;
ROLLBACK TO a;
SELECT * FROM token_stats_by_name;
ROLLBACK TO a;
SET LOCAL ROLE regress_tl_bob;
SELECT token_get('k'), token_put('k');
SELECT count(*) >= 0 AS holders FROM token_holders;
ROLLBACK;

-- Two roles with one owner name are two owners.
SET ROLE regress_tl_alice;
SELECT token_get('k', owner => 'server-a');
SET ROLE regress_tl_bob;
SELECT token_get('k', owner => 'server-a'), token_fence('k', owner => 'server-a');
SELECT token_put_all(owner => 'server-a');
SELECT token_get('l', owner => 'server-a');
SET ROLE regress_tl_alice;
SELECT token_put_all(owner => 'server-a');
SET ROLE regress_tl_bob;
SELECT token_put_all(owner => 'server-a');
RESET ROLE;

-- In a SECURITY DEFINER function it is the definer's owner name.
CREATE FUNCTION definer_get(name text, owner text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER AS 'SELECT token_get($1, owner => $2)';
CREATE FUNCTION definer_put(name text, owner text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER AS 'SELECT token_put($1, owner => $2)';
CREATE FUNCTION definer_session_get(name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER AS 'SELECT token_get($1)';
ALTER FUNCTION definer_get(text, text) OWNER TO regress_tl_alice;
ALTER FUNCTION definer_put(text, text) OWNER TO regress_tl_alice;
ALTER FUNCTION definer_session_get(text) OWNER TO regress_tl_alice;
SET ROLE regress_tl_bob;
SELECT definer_get('k', 'w1');
SELECT token_get('k', owner => 'w1'), token_put('k', owner => 'w1');
RESET ROLE;
SELECT name, owner, role FROM token_holders;
SET ROLE regress_tl_alice;
SELECT token_fence('k', owner => 'w1') IS NOT NULL AS hers;
SET ROLE regress_tl_bob;
SELECT definer_put('k', 'w1');
-- The session is the session, whichever role it takes on.
SELECT definer_session_get('k');
SELECT token_get('k'), token_fence('k') IS NOT NULL AS mine;
RESET ROLE;
SELECT name, owner, role FROM token_holders;
SELECT token_put('k');

-- tokenlock.session_tokens: no token that would strand behind a pooler.
SET tokenlock.session_tokens = off;
SELECT token_get('k');
SELECT token_request('k', shared => true);
SELECT token_get('k', capacity => 2, ttl => '1s');
SELECT token_get_all('{k}');
SELECT token_get('k', owner => 'w1'), token_put('k', owner => 'w1');
BEGIN;
SELECT token_get('k', scope => 'transaction');
SELECT token_get_all('{l,m}', scope => 'transaction');
SELECT name, scope FROM token_holders ORDER BY name;
-- Nor is a transaction's token lengthened.
SAVEPOINT a;
SELECT token_get('k');
ROLLBACK TO a;
COMMIT;
SELECT * FROM token_holders;
RESET tokenlock.session_tokens;
-- What was taken before can be put.
SELECT token_get('k');
SET tokenlock.session_tokens = off;
SELECT token_put('k');
RESET tokenlock.session_tokens;
-- Per role.
ALTER ROLE regress_tl_alice SET tokenlock.session_tokens = off;
SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'regress_tl_alice'::regrole;

-- A dropped role's leases are nobody's, but can be broken.
SET ROLE regress_tl_bob;
SELECT token_get('k', owner => 'w1', ttl => '1h');
RESET ROLE;
DROP FUNCTION definer_get(text, text), definer_put(text, text),
    definer_session_get(text);
DROP ROLE regress_tl_alice, regress_tl_bob, regress_tl_users;
SELECT name, owner, role FROM token_holders;
SELECT token_break(name, fence) FROM token_holders;
SELECT * FROM token_holders;
