-- A parallel worker shares its leader's locks: nothing is taken in parallel.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- Wrappers that are labelled wrongly, as users do.
CREATE FUNCTION wrong_get(text) RETURNS boolean
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_get($1); END';
CREATE FUNCTION wrong_request(text) RETURNS boolean
LANGUAGE plpgsql PARALLEL SAFE AS
'BEGIN RETURN (token_request($1, owner => ''w1'')).granted; END';
CREATE FUNCTION wrong_put(text) RETURNS boolean
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_put($1); END';
CREATE FUNCTION wrong_put_all() RETURNS bigint
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_put_all(); END';
CREATE FUNCTION wrong_renew(text) RETURNS boolean
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_renew($1); END';
CREATE FUNCTION wrong_guard(text) RETURNS bigint
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_guard($1); END';
CREATE FUNCTION wrong_get_all(text[]) RETURNS boolean
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_get_all($1); END';
CREATE FUNCTION wrong_break(text) RETURNS boolean
LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN token_break($1, 1); END';
CREATE FUNCTION parallel_mode(mode text) RETURNS text
LANGUAGE sql AS $$
    SELECT set_config(name, mode, false) FROM pg_settings
    WHERE name IN ('force_parallel_mode', 'debug_parallel_query')
$$;

SELECT token_get('k');
SELECT parallel_mode('on');
-- Rightly labelled, the calls keep the plan out of parallel mode.
SELECT token_get('k'), token_renew('k');
-- The error may come from a worker, whose context line is not ours to test.
\set VERBOSITY sqlstate
SELECT wrong_get('x');
SELECT wrong_request('x');
SELECT wrong_put('k');
SELECT wrong_put_all();
SELECT wrong_renew('k');
SELECT wrong_guard('k');
SELECT wrong_get_all('{k,x}');
SELECT wrong_break('k');
\set VERBOSITY default
SELECT parallel_mode('off');

-- Nothing was taken, nothing was given back.
SELECT name, scope FROM token_holders;
SELECT token_put('k');
-- Outside of parallel mode the wrappers work.
SELECT wrong_get('x'), wrong_renew('x'), wrong_put('x'), wrong_put_all();

-- How the functions are labelled.
SELECT proname, provolatile, proparallel, proisstrict, prosecdef
FROM pg_proc WHERE proname IN ('token_get', 'token_request', 'token_put',
    'token_put_all', 'token_renew', 'token_fence', 'token_guard',
    'token_get_all', 'token_break')
    AND pronamespace = 'public'::regnamespace
ORDER BY proname COLLATE "C";

DROP FUNCTION wrong_get(text), wrong_request(text), wrong_put(text),
    wrong_put_all(), wrong_renew(text), wrong_guard(text),
    wrong_get_all(text[]), wrong_break(text), parallel_mode(text);
