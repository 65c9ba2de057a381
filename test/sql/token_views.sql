-- token_holders and token_waiters: what they show, and to whom.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
DROP ROLE IF EXISTS regress_tl_alice, regress_tl_bob, regress_tl_group,
    regress_tl_monitor;
RESET client_min_messages;
CREATE ROLE regress_tl_alice;
CREATE ROLE regress_tl_bob;
CREATE ROLE regress_tl_group IN ROLE regress_tl_alice;
CREATE ROLE regress_tl_monitor IN ROLE pg_read_all_stats;

-- The columns, and their types.
SELECT attrelid::regclass AS view, attname, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid IN ('token_holders'::regclass, 'token_waiters'::regclass)
    AND attname IN ('name', 'owner', 'role', 'pid', 'scope', 'shared',
        'fence', 'acquired_at', 'expires_at', 'place', 'waiting_since', 'deadline')
ORDER BY attrelid::regclass::text COLLATE "C", attname COLLATE "C";

SET ROLE regress_tl_alice;
SELECT token_get('s'), token_get('o', ttl => '1h', owner => 'w1');
BEGIN;
SELECT token_get('t', scope => 'transaction');
-- The holder herself sees all.
SELECT name, owner, role, pid = pg_backend_pid() AS me, scope,
    fence = token_fence(name, owner => owner) AS fence,
    acquired_at <= clock_timestamp() AND
    acquired_at > clock_timestamp() - interval '1min' AS acquired,
    date_trunc('minute', expires_at - acquired_at + '1s') AS ttl
FROM token_holders ORDER BY name;
COMMIT;
-- So does a member of her role, and who may read all statistics.
SET ROLE regress_tl_group;
SELECT name, owner, role, pid = pg_backend_pid() AS me, scope
FROM token_holders ORDER BY name;
SET ROLE regress_tl_monitor;
SELECT name, owner, role, pid = pg_backend_pid() AS me, scope
FROM token_holders ORDER BY name;
-- Another role sees that there is something.
SET ROLE regress_tl_bob;
SELECT name, owner, role, pid, scope
FROM token_holders ORDER BY scope;
SELECT count(*) FROM token_holders WHERE name IN ('s', 'o');
-- His own rows he sees whole, among the others.
SELECT token_get('b');
SELECT name, owner, role, pid = pg_backend_pid() AS me, scope
FROM token_holders ORDER BY scope, name COLLATE "C";
SELECT token_put('b');
RESET ROLE;
-- The role of a grant is that of its call.
SELECT name, role FROM token_holders ORDER BY name;

-- The lease outlives its session.
\c -
SELECT name, owner, role, scope FROM token_holders WHERE name = 'o';
SET ROLE regress_tl_alice;
SELECT token_put('o', owner => 'w1');
RESET ROLE;

-- Nobody waits, and the view says so.
SELECT * FROM token_waiters;

-- The views can be joined, sorted, and read from in one go.
SELECT bool_and(token_get('n' || i)) FROM generate_series(1, 200) i;
SELECT count(DISTINCT fence), count(*), min(name), max(name)
FROM token_holders JOIN pg_stat_activity USING (pid)
WHERE name LIKE 'n%';
SELECT token_put_all();

-- A role that is gone leaves its leases to lapse; the view copes.
CREATE ROLE regress_tl_gone;
SET ROLE regress_tl_gone;
SELECT token_get('g', ttl => '3s', owner => 'w1');
RESET ROLE;
DROP ROLE regress_tl_gone;
SELECT name, owner, role FROM token_holders WHERE name = 'g';
SELECT fence AS f1 FROM token_holders WHERE name = 'g' \gset
-- It is nobody's now, also by its fence.
SELECT token_put('g', fence => :f1);
SELECT token_get('g', wait => '10s', owner => 'w1');
SELECT token_put('g', owner => 'w1');

-- No rights beyond those of PUBLIC are needed, and the sequence has none.
SET ROLE regress_tl_bob;
SELECT count(*) >= 0 AS readable FROM token_waiters;
SELECT nextval('tokenlock_fence');
SELECT setval('tokenlock_fence', 1);
RESET ROLE;
DROP ROLE regress_tl_alice, regress_tl_bob, regress_tl_group,
    regress_tl_monitor;
