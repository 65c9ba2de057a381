-- Permits: a token of which several owners have one each.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- As many owners as the capacity says, and each has one permit.
SELECT i, token_get('p', owner => 'w' || i, capacity => 3)
FROM generate_series(1, 4) i;
SELECT owner, scope, shared FROM token_holders WHERE name = 'p' ORDER BY owner;
SELECT count(DISTINCT fence) FROM token_holders WHERE name = 'p';
-- Asked for again, it is the same permit.
SELECT granted, fence = token_fence('p', owner => 'w1') AS same_fence, answer
FROM token_request('p', owner => 'w1', capacity => 3);
SELECT count(*) FROM token_holders WHERE name = 'p';
-- One put gives it back, and the second adds no permit.
SELECT token_put('p', owner => 'w1'), token_put('p', owner => 'w1');
SELECT token_get('p', owner => 'w4', capacity => 3);
SELECT token_get('p', owner => 'w1', capacity => 3);
-- This session is an owner, too.
SELECT token_put('p', owner => 'w2');
SELECT token_get('p', capacity => 3);
SELECT owner, scope FROM token_holders WHERE name = 'p' ORDER BY owner;
SELECT token_get('p', owner => 'w2', capacity => 3);
SELECT token_put('p'), token_put('p', owner => 'w3'),
    token_put('p', owner => 'w4');

-- A request is judged by its own capacity, and by that of every holder.
SELECT token_get('q', owner => 'w1', capacity => 3);
SELECT token_get('q', owner => 'w2', capacity => 1) AS alone;
SELECT token_get('q', owner => 'w2', capacity => 2) AS one_of_two;
SELECT token_get('q', owner => 'w3', capacity => 3) AS third_of_three;
SELECT token_get('q', owner => 'w3', capacity => 1000) AS third_of_many;
SELECT token_put('q', owner => 'w2');
SELECT token_get('q', owner => 'w2', capacity => 3),
    token_get('q', owner => 'w3', capacity => 1000);
SELECT token_get('q', owner => 'w4', capacity => 1000);
SELECT token_put_all('{q}', owner => 'w1'), token_put_all('{q}', owner => 'w2'),
    token_put_all('{q}', owner => 'w3');
-- Who has it alone keeps it so, whatever others ask for.
SELECT token_get('q', owner => 'w1');
SELECT token_get('q', owner => 'w2', capacity => 1000);
-- Asking for more by the holder itself changes nothing.
SELECT answer FROM token_request('q', owner => 'w1', capacity => 1000);
SELECT token_get('q', owner => 'w2', capacity => 1000);
SELECT token_put('q', owner => 'w1');

-- Nor does asking for less: a permit is not a hold of one's own.
SELECT token_get('q', owner => 'w1', capacity => 2);
SELECT answer FROM token_request('q', owner => 'w1');
SELECT token_get('q', owner => 'w2', capacity => 2);
SELECT answer FROM token_request('q', owner => 'w2', shared => true);
SELECT token_put('q', owner => 'w1'), token_put('q', owner => 'w2');

-- Permits of a session end as its other tokens do, and with a ttl too.
BEGIN;
SELECT token_get('t', capacity => 2, scope => 'transaction');
SELECT token_get('t', capacity => 2, owner => 'w1');
SELECT token_get('t', capacity => 2, owner => 'w2');
COMMIT;
SELECT token_get('t', capacity => 2, owner => 'w2');
SELECT token_put('t', owner => 'w1'), token_put('t', owner => 'w2');
SELECT token_get('t', capacity => 2, owner => 'w1', ttl => '300ms'),
    token_get('t', capacity => 2, owner => 'w2', ttl => '1h');
SELECT token_get('t', capacity => 2, wait => '10s');
SELECT owner, scope FROM token_holders WHERE name = 't' ORDER BY owner;
SELECT token_put('t', owner => 'w1'), token_put('t', owner => 'w2'),
    token_put('t');
SELECT token_get('d', capacity => 2);
DISCARD ALL;
SELECT * FROM token_holders;

-- Capacities that are none.
SELECT token_get('p', capacity => 0);
SELECT token_get('p', capacity => -1);
SELECT token_get('p', capacity => NULL);
SELECT token_get('p', capacity => 2, shared => true);
SELECT token_get('p', capacity => 1, shared => true);
SELECT token_get('b', owner => 'w1', capacity => 9223372036854775807),
    token_get('b', owner => 'w2', capacity => 2147483648),
    token_get('b', owner => 'w3', capacity => 4294967297);
SELECT count(*) FROM token_holders WHERE name = 'b';
SELECT token_put('p'), token_put('b', owner => 'w1'),
    token_put('b', owner => 'w2'), token_put('b', owner => 'w3');
