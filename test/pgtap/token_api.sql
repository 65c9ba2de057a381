-- The SQL surface of tokens, for those who test with pgTAP: which functions
-- and views there are, how they are declared, and what the simplest calls say.
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_ROLLBACK 1
\set ON_ERROR_STOP true

BEGIN;
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

SELECT no_plan();

SELECT has_extension('tokenlock');

-- The names of the arguments are what users write; more may come.
SELECT ok(args::text[] <@ proargnames,
    proname || ' has the arguments of its documentation')
FROM pg_proc
JOIN (VALUES
    ('token_get', '{name,wait,ttl,owner,capacity,shared,scope,keep_place}'),
    ('token_request',
     '{name,wait,ttl,owner,capacity,shared,scope,keep_place,granted,fence,expires_at,answer,place}'),
    ('token_put', '{name,owner,fence}'),
    ('token_put_all', '{names,owner}'),
    ('token_renew', '{name,ttl,owner,fence}'),
    ('token_fence', '{name,owner}'),
    ('token_guard', '{name,owner,fence}'),
    ('token_get_all', '{names,wait,ttl,owner,scope}'),
    ('token_break', '{name,fence}'),
    ('token_acquire',
     '{name,wait,ttl,owner,capacity,shared,granted,fence,expires_at}')) v (f, args) ON proname = f
ORDER BY proname COLLATE "C";

SELECT function_returns('token_get', 'boolean');
SELECT function_returns('token_put', 'boolean');
SELECT function_returns('token_put_all', 'bigint');
SELECT function_returns('token_renew', 'boolean');
SELECT function_returns('token_fence', 'bigint');
SELECT function_returns('token_guard', 'bigint');
SELECT function_returns('token_get_all', 'boolean');
SELECT function_returns('token_break', 'boolean');
SELECT is_procedure('token_acquire');

-- Each call counts, and none may run in a parallel worker or as its owner.
SELECT volatility_is(f, 'volatile')
FROM unnest('{token_get,token_request,token_put,token_put_all,token_renew,token_fence,token_guard,token_get_all,token_break}'::name[]) f;
SELECT isnt_definer(f)
FROM unnest('{token_get,token_request,token_put,token_put_all,token_renew,token_fence,token_guard,token_get_all,token_break}'::name[]) f;
SELECT isnt_strict(f)
FROM unnest('{token_get,token_request,token_put,token_put_all,token_renew,token_fence,token_guard,token_get_all,token_break}'::name[]) f;
SELECT is(count(*), 9::bigint, 'all are parallel unsafe') FROM pg_proc
WHERE proname IN ('token_get', 'token_request', 'token_put', 'token_put_all',
    'token_renew', 'token_fence', 'token_guard', 'token_get_all',
    'token_break') AND proparallel = 'u';
SELECT isnt(obj_description(p.oid, 'pg_proc'), NULL, proname || ' has a comment')
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
    AND d.deptype = 'e'
JOIN pg_extension e ON d.refobjid = e.oid AND e.extname = 'tokenlock'
WHERE proname LIKE 'token\_%'
ORDER BY proname COLLATE "C";

SELECT has_view('token_holders');
SELECT has_view('token_waiters');
SELECT has_view('token_stats');
SELECT has_view('token_stats_by_name');
SELECT has_column('token_holders', c)
FROM unnest('{name,owner,role,pid,scope,shared,fence,acquired_at,expires_at}'::name[]) c;
SELECT has_column('token_waiters', c)
FROM unnest('{name,place,owner,role,pid,waiting_since,deadline}'::name[]) c;
SELECT has_sequence('tokenlock_fence');
SELECT ok(has_table_privilege('pg_monitor', 'token_holders', 'SELECT'),
    'token_holders can be read');
SELECT ok(NOT has_sequence_privilege('pg_monitor', 'tokenlock_fence', 'UPDATE'),
    'the sequence cannot be set');

-- A round, in one transaction.
SELECT ok(token_get('pgtap:k'), 'get a free token');
SELECT ok(token_get('pgtap:k'), 'get it again');
SELECT ok(NOT token_get('pgtap:k', owner => 'other'), 'another owner is refused');
SELECT isnt(token_fence('pgtap:k'), NULL, 'it has a fence');
SELECT results_eq(
    $$SELECT name, scope FROM token_holders WHERE name = 'pgtap:k'$$,
    $$VALUES ('pgtap:k', 'session')$$, 'the view shows it');
SELECT ok(token_put('pgtap:k'), 'put it');
SELECT ok(NOT token_put('pgtap:k'), 'one put is enough');
SELECT throws_ok($$SELECT token_get('')$$, '22023', NULL, 'an empty name');
SELECT throws_ok($$SELECT token_get(NULL)$$, '22004', NULL, 'no name');
SELECT throws_ok($$SELECT token_get(repeat('n', 256))$$, '42622', NULL,
    'a long name');

SELECT * FROM finish();
ROLLBACK;
