-- Names and owners: which there may be, and which are the same.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

\getenv abs_srcdir PG_ABS_SRCDIR
\set try :abs_srcdir '/sql/common/try.sql'
\i :try

-- P27: 255 bytes are a name, and all of them show.
SELECT token_get(repeat('n', 255));
SELECT length(name), name = repeat('n', 255) AS whole FROM token_holders;
SELECT token_fence(repeat('n', 255)) IS NOT NULL AS held;
SELECT token_renew(repeat('n', 255), '1h'), token_put(repeat('n', 255));
SELECT token_get('k', owner => repeat('o', 255));
SELECT length(owner) FROM token_holders;
SELECT token_put('k', owner => repeat('o', 255));
-- 256 are not, also when they are 128 letters in UTF8.
SELECT pg_temp.try($$SELECT token_get(repeat('n', 256))$$);
SELECT pg_temp.try($$SELECT token_get(repeat(E'\xC3\xA9', 128))$$);
SELECT pg_temp.try($$SELECT token_request(repeat('n', 256))$$);
SELECT pg_temp.try($$SELECT token_put(repeat('n', 256))$$);
SELECT pg_temp.try($$SELECT token_renew(repeat('n', 256))$$);
SELECT pg_temp.try($$SELECT token_fence(repeat('n', 256))$$);
SELECT pg_temp.try($$SELECT token_put_all(ARRAY['a', repeat('n', 256)])$$);
-- Empty.
SELECT pg_temp.try($$SELECT token_get('')$$);
SELECT pg_temp.try($$SELECT token_request('')$$);
SELECT pg_temp.try($$SELECT token_put('')$$);
SELECT pg_temp.try($$SELECT token_renew('')$$);
SELECT pg_temp.try($$SELECT token_fence('')$$);
SELECT pg_temp.try($$SELECT token_put_all('{a,""}')$$);
-- NULL.
SELECT pg_temp.try($$SELECT token_get(NULL)$$);
SELECT pg_temp.try($$SELECT token_request(NULL)$$);
SELECT pg_temp.try($$SELECT token_put(NULL)$$);
SELECT pg_temp.try($$SELECT token_renew(NULL)$$);
SELECT pg_temp.try($$SELECT token_fence(NULL)$$);
SELECT pg_temp.try($$SELECT token_put_all('{a,NULL}')$$);
-- Owners take the same rules; NULL is the session.
SELECT pg_temp.try($$SELECT token_get('k', owner => '')$$);
SELECT pg_temp.try($$SELECT token_request('k', owner => '')$$);
SELECT pg_temp.try($$SELECT token_put('k', owner => '')$$);
SELECT pg_temp.try($$SELECT token_put_all(owner => '')$$);
SELECT pg_temp.try($$SELECT token_renew('k', owner => '')$$);
SELECT pg_temp.try($$SELECT token_fence('k', owner => '')$$);
SELECT pg_temp.try($$SELECT token_get('k', owner => repeat('o', 256))$$);
SELECT pg_temp.try($$SELECT token_request('k', owner => repeat('o', 256))$$);
SELECT pg_temp.try($$SELECT token_put('k', owner => repeat('o', 256))$$);
SELECT pg_temp.try($$SELECT token_put_all(owner => repeat('o', 256))$$);
SELECT pg_temp.try($$SELECT token_renew('k', owner => repeat('o', 256))$$);
SELECT pg_temp.try($$SELECT token_fence('k', owner => repeat('o', 256))$$);
-- Nothing of all that left anything behind.
SELECT count(*) FROM token_holders;

-- P28: names are bytes.  Each of these owners gets a token of its own.
CREATE TEMP TABLE names (n text);
INSERT INTO names VALUES ('Job'), ('job'), ('job '), (' job'), ('job' || chr(9)),
    -- an accented word, composed, decomposed, and in capitals (UTF8)
    (E'caf\xC3\xA9'), (E'cafe\xCC\x81'), (E'CAF\xC3\x89'),
    ('''; --'), ('%s%n\');
SELECT convert_to(n, getdatabaseencoding()) AS name,
    token_get(n, owner => 'w' || n)
FROM names ORDER BY n COLLATE "C";
SELECT count(*), count(DISTINCT name COLLATE "C") FROM token_holders;
SELECT count(*) FROM names
WHERE NOT EXISTS (SELECT FROM token_holders h
                  WHERE h.name = n COLLATE "C" AND h.owner = 'w' || n COLLATE "C");
SELECT bool_and(token_put(n, owner => 'w' || n)) FROM names;
-- A prefix is another name.
SELECT token_get('ab'), token_get('a', owner => 'w1'), token_put('abc');
SELECT token_put_all(), token_put_all(owner => 'w1');
