-- Shared holds, and how one becomes a hold of one's own.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- Shared holders have it together; nobody has it alone, or a permit.
SELECT token_get('s', owner => 'r1', shared => true),
    token_get('s', owner => 'r2', shared => true),
    token_get('s', shared => true);
SELECT owner, scope, shared FROM token_holders WHERE name = 's' ORDER BY owner;
SELECT token_get('s', owner => 'w'),
    token_get('s', owner => 'w', capacity => 1000);
SELECT answer FROM token_request('s', owner => 'r1', shared => true);
SELECT token_put('s', owner => 'r1'), token_put('s', owner => 'r1');
SELECT token_get('s', owner => 'w');
SELECT token_put('s'), token_put('s', owner => 'r2');
-- .. and the other way round.
SELECT token_get('s', owner => 'w', capacity => 1000);
SELECT token_get('s', owner => 'r1', shared => true);
SELECT token_put('s', owner => 'w');
SELECT token_get('s', owner => 'w');
SELECT token_get('s', owner => 'r1', shared => true);
-- Who has it alone and asks to share goes on to have it alone.
SELECT answer FROM token_request('s', owner => 'w', shared => true);
SELECT shared FROM token_holders WHERE name = 's';
SELECT token_get('s', owner => 'r1', shared => true);
SELECT token_put('s', owner => 'w');

-- An upgrade is a new grant, to be had by the only holder.
SELECT token_get('u', shared => true), token_get('u', shared => true, owner => 'r1');
SELECT token_fence('u') AS f1 \gset
SELECT granted, fence, answer FROM token_request('u');
SELECT granted, fence, answer FROM token_request('u', wait => '1ms');
SELECT token_fence('u') = :f1 AS kept,
    (SELECT shared FROM token_holders WHERE name = 'u' AND owner IS NULL);
SELECT token_put('u', owner => 'r1');
SELECT granted, fence > :f1 AS grown, answer FROM token_request('u');
SELECT scope, shared, fence > :f1 AS grown FROM token_holders WHERE name = 'u';
SELECT token_get('u', shared => true, owner => 'r1');
-- The former grant is gone, one put ends the hold.
SELECT token_put('u', fence => :f1), token_put('u'), token_put('u');
-- So it is with a lease, which goes on, or gets the ttl that is given.
SELECT token_get('u', shared => true, owner => 'r1', ttl => '1h');
SELECT granted, expires_at BETWEEN now() + '59min' AND now() + '61min' AS an_hour
FROM token_request('u', owner => 'r1');
SELECT token_put('u', owner => 'r1');
SELECT token_get('u', shared => true, owner => 'r1', ttl => '1h');
SELECT granted, expires_at < now() + '1min' AS short
FROM token_request('u', owner => 'r1', ttl => '30s');
SELECT token_put('u', owner => 'r1');
-- A permit asked for by a shared holder is an upgrade as well.
SELECT token_get('u', shared => true, owner => 'r1');
SELECT answer FROM token_request('u', capacity => 2, owner => 'r1');
SELECT token_get('u', capacity => 2, owner => 'r2');
SELECT token_get('u', shared => true, owner => 'r3');
SELECT token_put('u', owner => 'r1'), token_put('u', owner => 'r2');

-- Scopes: the upgrade keeps that of the hold, or lengthens it.
BEGIN;
SELECT token_get('u', shared => true, scope => 'transaction');
SELECT answer FROM token_request('u', scope => 'transaction');
SELECT scope, shared FROM token_holders WHERE name = 'u';
COMMIT;
SELECT count(*) FROM token_holders WHERE name = 'u';
BEGIN;
SELECT token_get('u', shared => true, scope => 'transaction');
SELECT answer FROM token_request('u');
SELECT scope, shared FROM token_holders WHERE name = 'u';
COMMIT;
SELECT scope, shared FROM token_holders WHERE name = 'u';
SELECT token_put('u');
-- One that is refused changes nothing.
SELECT token_get('u', shared => true, owner => 'r1');
BEGIN;
SELECT token_get('u', shared => true, scope => 'transaction');
SELECT answer FROM token_request('u');
SELECT scope, shared FROM token_holders WHERE name = 'u' AND owner IS NULL;
COMMIT;
SELECT count(*) FROM token_holders WHERE name = 'u' AND owner IS NULL;
SELECT token_put('u', owner => 'r1');
-- A session's hold is not shortened.
SELECT token_get('u', shared => true);
BEGIN;
SELECT answer FROM token_request('u', scope => 'transaction');
COMMIT;
SELECT scope, shared FROM token_holders WHERE name = 'u';
SELECT token_put('u');

-- Savepoints.
BEGIN;
SAVEPOINT a;
SELECT token_get('u', shared => true, scope => 'transaction');
ROLLBACK TO a;
SELECT count(*) FROM token_holders WHERE name = 'u';
SELECT token_get('u', shared => true, scope => 'transaction');
SAVEPOINT b;
SELECT answer FROM token_request('u', scope => 'transaction');
RELEASE b;
SELECT scope, shared FROM token_holders WHERE name = 'u';
ROLLBACK;
SELECT * FROM token_holders;

-- A shared lease that lapses makes way.
SELECT token_get('l', shared => true, owner => 'r1', ttl => '300ms'),
    token_get('l', shared => true, owner => 'r2', ttl => '1h');
SELECT answer FROM token_request('l', wait => '10s', owner => 'r2');
SELECT token_fence('l', owner => 'r1');
SELECT token_put('l', owner => 'r2');

-- An error after an upgrade does not take away what was held before.
SELECT token_get('m', shared => true);
SELECT token_get('m'), 1 / (SELECT 0);
SELECT name, shared FROM token_holders WHERE name = 'm';
SELECT token_put('m');

-- Where a value is needed.
SELECT token_get('s', shared => NULL);
