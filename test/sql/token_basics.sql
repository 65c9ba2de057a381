-- What get, request, put and fence answer to one session.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- Taken, asked for again, given back by one put.
SELECT token_get('k');
SELECT token_get('k');
SELECT count(*) FROM token_holders WHERE name = 'k';
SELECT token_put('k');
SELECT token_put('k');
SELECT count(*) FROM token_holders WHERE name = 'k';

-- P05: putting what was never held is an answer, and a silent one.
SET client_min_messages = debug1;
SELECT token_put('never');
SELECT token_put('never', owner => 'w1');
SELECT token_put('never', fence => 1);
RESET client_min_messages;

-- P65: a second name does not free the first.
SELECT token_get('x'), token_get('y');
SELECT name, scope FROM token_holders ORDER BY name;
SELECT token_put('x'), token_put('y');

-- token_request says what happened; a hold without ttl has no end.
SELECT granted, fence IS NOT NULL AS has_fence, expires_at, answer
FROM token_request('r');
SELECT fence AS f1 FROM token_request('r') \gset
SELECT granted, fence = :f1 AS same_fence, expires_at, answer
FROM token_request('r');
SELECT token_fence('r') = :f1 AS is_fence;
-- Somebody else's request is refused, and learns no fence.
SELECT * FROM token_request('r', owner => 'w1');
SELECT token_get('r', wait => '1ms', owner => 'w1');
SELECT token_fence('r', owner => 'w1');
SELECT token_put('r', owner => 'w1');

-- Put and renew with a fence act on that very grant.
SELECT token_put('r', fence => :f1 - 1), token_put('r', fence => :f1 + 1);
SELECT token_renew('r', fence => :f1 + 1), token_renew('r', fence => :f1);
SELECT token_put('r', fence => :f1);
SELECT token_fence('r');

-- Each grant has a larger fence than the one before it.
SELECT granted, fence > :f1 AS grown, answer FROM token_request('r');
SELECT fence AS f2 FROM token_request('r') \gset
SELECT token_put('r', fence => :f1) AS old_grant;
SELECT token_put('r', fence => :f2) AS new_grant;

-- A fence is an exact number in JavaScript, too.
SELECT fence BETWEEN 1 AND (2::numeric ^ 53) AS exact
FROM token_request('r');
SELECT token_put('r');

-- P66: names need no allocation, grants no writes and no transaction id.
BEGIN;
SELECT token_get('k', scope => 'transaction');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
ROLLBACK;
SELECT count(*) FROM token_holders;
-- The same in a transaction that may not write.
BEGIN READ ONLY;
SELECT token_get('k', ttl => '1h', owner => 'w1');
SELECT token_put('k', owner => 'w1');
COMMIT;

-- Two calls in one statement are two calls.
SELECT i, token_get('n' || i % 2) FROM generate_series(1, 4) i;
SELECT i, token_put('n' || i % 2) FROM generate_series(1, 4) i;
