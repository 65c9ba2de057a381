-- Several tokens at once: all or none.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- Duplicates count once, the order of the list does not matter.
SELECT token_get_all('{b,a,a}');
SELECT name, owner, scope, shared, expires_at FROM token_holders ORDER BY name;
SELECT token_put_all('{a,b,z}');
SELECT token_get_all('{a,b}', owner => 'w1', ttl => '1h');
SELECT name, owner, expires_at - now() > '59min' AS an_hour
FROM token_holders ORDER BY name;
-- Again: nothing new, but both leases restart, together.
SELECT token_fence('a', owner => 'w1') AS f1 \gset
SELECT token_get_all('{b,a}', owner => 'w1', ttl => '2h');
SELECT token_fence('a', owner => 'w1') = :f1 AS same_fence;
SELECT bool_and(expires_at - now() > '119min') AS two_hours FROM token_holders;
SELECT token_get_all('{b,a}', owner => 'w1');
SELECT bool_and(expires_at - now() > '119min') AS still_two_hours FROM token_holders;
SELECT token_put_all(owner => 'w1');
-- A named owner's lease has an end in any case.
SELECT token_get_all('{c}', owner => 'w1');
SELECT expires_at - acquired_at < '61s' AS default_ttl FROM token_holders;
SELECT token_put('c', owner => 'w1');

-- One that is not to be had: none is taken.
SELECT token_get('b', owner => 'other');
SELECT token_get_all('{a,b,c}');
SELECT token_get_all('{c,b,a}', owner => 'w1');
SELECT token_get_all('{c,b,a}', wait => '50ms', owner => 'w1');
SELECT token_get_all('{c,b,a}', wait => '50ms');
SELECT name, owner FROM token_holders;
-- What was held before is neither put nor renewed.
SELECT token_get('a', owner => 'w1', ttl => '1h'), token_get('c');
SELECT expires_at AS e1 FROM token_holders WHERE name = 'a' \gset
SELECT token_get_all('{a,b,d}', owner => 'w1', ttl => '2h');
SELECT token_get_all('{a,b,d}', wait => '10ms', owner => 'w1', ttl => '2h');
SELECT token_get_all('{b,c}', ttl => '2h');
SELECT name, owner, fence = token_fence(name, owner => owner) AS mine,
    expires_at = :'e1' AS unchanged
FROM token_holders ORDER BY name;
SELECT token_put('b', owner => 'other');
SELECT token_get_all('{a,b,d}', owner => 'w1', ttl => '2h');
SELECT name, owner, expires_at - now() > '119min' AS two_hours
FROM token_holders ORDER BY name;
SELECT token_put_all(owner => 'w1'), token_put_all();

-- What is got first neither lapses nor grows old while the rest is waited for.
SELECT token_get('b', owner => 'other', ttl => '1s'),
    token_get_all('{a,b}', wait => '20s', owner => 'w1', ttl => '500ms'),
    token_fence('a', owner => 'w1') IS NOT NULL AS a,
    token_fence('b', owner => 'w1') IS NOT NULL AS b;
SELECT token_put_all(owner => 'w1') >= 0 AS put;
SELECT token_get('b', owner => 'other', ttl => '1s'),
    token_get_all('{a,b}', wait => '20s', owner => 'w1', ttl => '1h');
SELECT max(acquired_at) - min(acquired_at) > '900ms' AS waited,
    max(expires_at) - min(expires_at) < '900ms' AS together FROM token_holders;
SELECT token_put_all(owner => 'w1');

-- Scopes.
BEGIN;
SELECT token_get_all('{a,b}', scope => 'transaction');
SELECT name, scope FROM token_holders ORDER BY name;
SAVEPOINT s;
SELECT token_get_all('{b,c}', scope => 'transaction');
SELECT name, scope FROM token_holders ORDER BY name;
ROLLBACK TO s;
SELECT name, scope FROM token_holders ORDER BY name;
COMMIT;
SELECT count(*) FROM token_holders;
SELECT token_get_all('{a,b}', ttl => '1h');
SELECT name, scope, expires_at IS NOT NULL AS timed FROM token_holders ORDER BY name;
SELECT token_put_all();
-- An error in the middle leaves nothing, of any kind.
SELECT token_get('b', owner => 'other');
SET lock_timeout = '50ms';
SELECT token_get_all('{a,b}', wait => NULL);
SELECT token_get_all('{a,b}', wait => NULL, owner => 'w1');
BEGIN;
SELECT token_get_all('{a,b}', wait => NULL, scope => 'transaction');
ROLLBACK;
-- .. also where somebody catches it.
DO $$ BEGIN
	PERFORM token_get_all('{a,b}', wait => NULL, owner => 'w1');
EXCEPTION WHEN lock_not_available THEN
	RAISE NOTICE 'caught';
END $$;
RESET lock_timeout;
SELECT name, owner FROM token_holders;
SELECT token_put('b', owner => 'other');

-- A shared hold is not a hold of one's own.
SELECT token_get('a', shared => true);
SELECT token_get_all('{a,b}');
SELECT token_get_all('{0,a}');
SELECT name, shared FROM token_holders;
SELECT token_put('a');
SELECT token_get('a', owner => 'other', shared => true);
SELECT token_get_all('{a,b}');
SELECT token_put('a', owner => 'other');

-- Edges of the list.
SELECT token_get_all('{}');
SELECT token_get_all(NULL);
SELECT token_get_all('{a,NULL}');
SELECT token_get_all('{a,""}');
SELECT token_get_all(ARRAY['a', repeat('x', 256)]);
SELECT token_get_all('{{a,b},{c,a}}');
SELECT name FROM token_holders ORDER BY name;
SELECT token_put_all();
SELECT token_get_all('{a}', ttl => '0');
SELECT token_get_all('{a}', wait => '-1s');
SELECT token_get_all('{a}', scope => 'transaction', owner => 'w1');
-- Bytes, not letters, make the order and the names.
SELECT token_get_all('{job,Job,"job ",B,a}');
SELECT count(*) FROM token_holders;
SELECT token_put_all();
-- Long lists.
SELECT token_get_all(array_agg('n' || i % 3000)) FROM generate_series(1, 10000) i;
SELECT count(*), count(DISTINCT fence) FROM token_holders;
SELECT token_put_all();
SELECT token_get('n77', owner => 'other');
SELECT token_get_all(array_agg('n' || i)) FROM generate_series(1, 3000) i;
SELECT name FROM token_holders;
SELECT token_put('n77', owner => 'other');
SELECT * FROM token_holders;
