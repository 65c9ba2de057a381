-- Bad arguments: each an error of its own class, and nothing is changed.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

-- Scopes.
SELECT pg_temp.try($$SELECT token_get('k', scope => 'forever')$$);
SELECT pg_temp.try($$SELECT token_get('k', scope => 'Session')$$);
SELECT pg_temp.try($$SELECT token_get('k', scope => '')$$);
SELECT pg_temp.try($$SELECT token_get('k', scope => NULL)$$);
SELECT pg_temp.try($$SELECT token_get('k', owner => 'w1', scope => 'transaction')$$);
SELECT pg_temp.try($$SELECT answer FROM token_request('k', scope => 'forever')$$);
SELECT pg_temp.try($$SELECT answer FROM token_request('k', owner => 'w1',
    scope => 'transaction')$$);

-- Waits: '0' is one, less is not.
SELECT pg_temp.try($$SELECT token_get('k', wait => '-1s')$$);
SELECT pg_temp.try($$SELECT token_get('k', wait => '-1us')$$);
SELECT pg_temp.try($$SELECT token_get('k', wait => '1 day -25 hours')$$);
SELECT pg_temp.try($$SELECT answer FROM token_request('k', wait => '-1s')$$);
SELECT pg_temp.try($$SELECT token_get('k', wait => '0')$$);
SELECT token_put('k');

-- Leases: neither none nor less.
SELECT pg_temp.try($$SELECT token_get('k', ttl => '0')$$);
SELECT pg_temp.try($$SELECT token_get('k', ttl => '-1s')$$);
SELECT pg_temp.try($$SELECT token_get('k', ttl => '0', owner => 'w1')$$);
SELECT pg_temp.try($$SELECT token_get('k', ttl => '-1h', owner => 'w1')$$);
SELECT pg_temp.try($$SELECT answer FROM token_request('k', ttl => '0')$$);
SELECT pg_temp.try($$SELECT token_renew('k', '0')$$);
SELECT pg_temp.try($$SELECT token_renew('k', '-1s', owner => 'w1')$$);

-- None of them took anything.
SELECT count(*) FROM token_holders;

-- The arguments are looked at before the token is: a holder is told, too.
SELECT token_get('k', ttl => '1h', owner => 'w1');
SELECT expires_at AS e1 FROM token_holders \gset
SELECT pg_temp.try($$SELECT token_get('k', ttl => '0', owner => 'w1')$$);
SELECT pg_temp.try($$SELECT token_get('k', wait => '-1s', owner => 'w1')$$);
SELECT pg_temp.try($$SELECT token_renew('k', '-1s', owner => 'w1')$$);
SELECT expires_at - :'e1' BETWEEN '-50ms' AND '50ms' AS unchanged FROM token_holders;
SELECT token_put('k', owner => 'w1');

-- The shortest ttl that there is, and long waits and leases.
SELECT pg_temp.try($$SELECT token_get('k', ttl => '1us', owner => 'w1')$$);
SELECT token_get('k', wait => '5s', ttl => '1h', owner => 'w2');
SELECT token_put('k', owner => 'w2');
SELECT pg_temp.try($$SELECT token_get('k', wait => '100 years', ttl => '100 years',
    owner => 'w1')$$);
SELECT expires_at - acquired_at > '99 years' AS long FROM token_holders;
SELECT token_put('k', owner => 'w1');

-- Fences that no grant can have: zero and less are a caller's mistake.
SELECT token_get('k');
SELECT token_put('k', fence => 9223372036854775807);
SELECT pg_temp.try($$SELECT token_put('k', fence => 0)$$);
SELECT pg_temp.try($$SELECT token_put('k', fence => -1)$$);
SELECT pg_temp.try($$SELECT token_renew('k', fence => 0)$$);
SELECT token_put('k');

-- P69: where session tokens are off, asking for one is an error with a way out.
SET tokenlock.session_tokens = off;
SELECT pg_temp.try($$SELECT token_get('k')$$);
SELECT pg_temp.try($$SELECT answer FROM token_request('k', ttl => '1h')$$);
SELECT pg_temp.try($$SELECT token_get('k', owner => 'w1')$$);
SELECT token_put('k', owner => 'w1');
BEGIN;
SELECT token_get('k', scope => 'transaction');
-- Lengthening is asking for a session token as well.
SELECT pg_temp.try($$SELECT token_get('k')$$);
COMMIT;
RESET tokenlock.session_tokens;
SELECT count(*) FROM token_holders;

-- P69: in a failed transaction no call answers anything.
BEGIN;
SELECT 1 / 0;
SELECT token_get('k');
ROLLBACK;
