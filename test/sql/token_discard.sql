-- What drops locks behind our back: DISCARD ALL, pg_advisory_unlock_all().
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- P02: DISCARD ALL gives the session's tokens back, and a named owner's not.
SELECT token_get('k'), token_get('t', ttl => '1h');
SELECT token_get('n', owner => 'w1');
DISCARD ALL;
SELECT name, owner, scope FROM token_holders ORDER BY name;
SELECT token_put('k'), token_put('t');
SELECT token_get('k', owner => 'w2'), token_get('t', owner => 'w2');
SELECT token_get('n');
SELECT token_put('n', owner => 'w1'), token_put_all(owner => 'w2');

-- A DISCARD ALL that is refused discards nothing.
BEGIN;
SELECT token_get('k');
DISCARD ALL;
ROLLBACK;
SELECT name, scope FROM token_holders;
-- The other DISCARDs have nothing to do with it.
DISCARD PLANS;
DISCARD TEMP;
DISCARD SEQUENCES;
SELECT name, scope FROM token_holders;
-- Taken, discarded and taken again.
DISCARD ALL;
SELECT token_get('k');
DISCARD ALL;
SELECT count(*) FROM token_holders;

-- pg_advisory_unlock_all() is about other locks: the tokens stay.
SELECT token_get('k');
BEGIN;
SELECT token_get('t', scope => 'transaction');
SELECT pg_advisory_unlock_all();
SELECT name, scope FROM token_holders ORDER BY name;
SELECT token_get('k'), token_get('t', scope => 'transaction');
SELECT token_get('k', owner => 'w1'), token_get('t', owner => 'w1');
SELECT pg_advisory_unlock_all();
COMMIT;
SELECT name, scope FROM token_holders ORDER BY name;
-- The put after it works and says nothing.
SET client_min_messages = debug1;
SELECT token_put('k');
SELECT token_put('k');
RESET client_min_messages;
-- Put, put_all and a first ttl after it.
SELECT token_get('k'), token_get('l'), token_get('m');
SELECT pg_advisory_unlock_all();
SELECT token_renew('k', '1h'), token_renew('l');
SELECT token_put_all();
SELECT count(*) FROM token_holders;
-- Session end after it is in the isolation tests; locks are all gone now.
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- The application's own advisory locks are left alone.
SELECT pg_advisory_lock(1), pg_advisory_lock(2, 0);
SELECT token_get('k'), token_put('k');
BEGIN;
SELECT token_get('k', scope => 'transaction');
ROLLBACK;
SELECT token_put_all();
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_advisory_unlock(1), pg_advisory_unlock(2, 0);

-- P25: numbers that the application uses are no tokens.
SELECT count(pg_advisory_lock(i)) FROM generate_series(0, 1000) i;
SELECT count(pg_advisory_lock(i, 0)) FROM generate_series(0, 1000) i;
SELECT token_get('any'), token_put('any');
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_advisory_unlock_all();
