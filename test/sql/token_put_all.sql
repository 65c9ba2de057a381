-- token_put_all: all tokens of an owner, or those that are listed.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

CREATE TEMP VIEW held AS
    SELECT name, owner, scope FROM token_holders
    ORDER BY name COLLATE "C";

-- Nothing held: nothing put, nothing said.
SELECT token_put_all();
SELECT token_put_all(owner => 'w1');
SELECT token_put_all('{a,b}');
SELECT token_put_all('{}');

-- P02, second part: all of this session, and only of this session.
SELECT token_get('l'), token_get('m'), token_get('n', owner => 'w1');
SELECT token_put_all();
SELECT * FROM held;
SELECT token_put_all();

-- All of a named owner, and only of that.
SELECT token_get('o', owner => 'w1'), token_get('p', owner => 'w2'),
    token_get('s');
SELECT token_put_all(owner => 'w1');
SELECT * FROM held;
SELECT token_put_all(owner => 'w2'), token_put_all();

-- A list: duplicates, what is not held and what another holds do not count.
SELECT token_get('a'), token_get('b'), token_get('c'),
    token_get('d', owner => 'w1');
SELECT token_put_all('{c,a,a,d,z}');
SELECT * FROM held;
SELECT token_put_all('{d,b}', owner => 'w1');
SELECT * FROM held;
SELECT token_put_all('{}');
SELECT * FROM held;
SELECT token_put_all(NULL);
SELECT * FROM held;

-- A bad name in the list: an error, and nothing is put.
SELECT token_get('a'), token_get('b');
\set VERBOSITY sqlstate
SELECT token_put_all('{a,"",b}');
SELECT token_put_all('{a,NULL,b}');
SELECT token_put_all(ARRAY['a', repeat('n', 256), 'b']);
\set VERBOSITY default
SELECT * FROM held;
-- Lists of more dimensions are lists.
SELECT token_put_all('{{a,b},{c,d}}');

-- A transaction's holds are the session's owner's, too.
BEGIN;
SELECT token_get('s'), token_get('t', scope => 'transaction');
SAVEPOINT a;
SELECT token_get('u', scope => 'transaction');
SELECT token_put_all();
SELECT * FROM held;
ROLLBACK TO a;
COMMIT;
SELECT * FROM held;

-- Lapsed leases do not count.
SELECT token_get('k', ttl => '1us', owner => 'w1');
SELECT token_get('k', wait => '5s', owner => 'w2');
SELECT token_put_all(owner => 'w1'), token_put_all(owner => 'w2');

-- Many at once.
SELECT bool_and(token_get('n' || i, owner => 'w1'))
FROM generate_series(1, 1000) i;
SELECT bool_and(token_get('m' || i)) FROM generate_series(1, 1000) i;
SELECT count(*) FROM token_holders;
SELECT token_put_all(owner => 'w1');
SELECT token_put_all((SELECT array_agg('m' || i)
                      FROM generate_series(501, 2000) i));
SELECT token_put_all();
SELECT count(*) FROM token_holders;
