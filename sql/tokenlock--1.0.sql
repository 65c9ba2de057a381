/* sql/tokenlock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION tokenlock" to load this file. \quit

--
-- Durable state
--

/*
 * The first fence number of this database that is not reserved yet.  The
 * server changes it in place, a block of numbers at a time; nobody else has
 * any business with it, hence the REVOKE.  pg_dump carries it along, so that
 * fences go on growing in the restored database.
 */
CREATE SEQUENCE tokenlock_fence AS bigint;

REVOKE ALL ON SEQUENCE tokenlock_fence FROM PUBLIC;

COMMENT ON SEQUENCE tokenlock_fence IS
'first fence number that is not reserved yet; maintained by the server, do not touch';

SELECT pg_catalog.pg_extension_config_dump('tokenlock_fence', '');

--
-- Tokens
--
-- All functions are VOLATILE and, where they take, change or give back
-- something, PARALLEL UNSAFE: a parallel worker shares its leader's
-- heavyweight locks and could not tell its own holds from the leader's.
-- They are not STRICT: NULL means "without end" for a wait and "the default"
-- for a ttl or an owner, and an error where a value is needed.
--

CREATE FUNCTION token_get(
    name text,
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    scope text DEFAULT 'session')
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_get';

COMMENT ON FUNCTION token_get(text, interval, interval, text, text) IS
'take a named token, or learn that somebody else has it';

CREATE FUNCTION token_request(
    name text,
    wait interval DEFAULT '0',
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    scope text DEFAULT 'session',
    OUT granted boolean,
    OUT fence bigint,
    OUT expires_at timestamptz,
    OUT answer text)
RETURNS record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_request';

COMMENT ON FUNCTION token_request(text, interval, interval, text, text) IS
'take a named token as token_get does, and return the fence, the end of the lease and what happened';

CREATE FUNCTION token_put(
    name text,
    owner text DEFAULT NULL,
    fence bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_put';

COMMENT ON FUNCTION token_put(text, text, bigint) IS
'give a token back; false when this owner did not hold it';

CREATE FUNCTION token_put_all(
    names text[] DEFAULT NULL,
    owner text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_put_all';

COMMENT ON FUNCTION token_put_all(text[], text) IS
'give back the listed tokens of an owner, or all of them; returns how many were given back';

CREATE FUNCTION token_renew(
    name text,
    ttl interval DEFAULT NULL,
    owner text DEFAULT NULL,
    fence bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_renew';

COMMENT ON FUNCTION token_renew(text, interval, text, bigint) IS
'restart a lease; false when it has lapsed or is not this owner''s';

CREATE FUNCTION token_fence(
    name text,
    owner text DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tokenlock_token_fence';

COMMENT ON FUNCTION token_fence(text, text) IS
'the fence number of the grant that this owner has; NULL when it does not hold the token';

CREATE FUNCTION tokenlock_holders(
    OUT name text,
    OUT owner text,
    OUT role name,
    OUT pid integer,
    OUT scope text,
    OUT fence bigint,
    OUT acquired_at timestamptz,
    OUT expires_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_holders';

COMMENT ON FUNCTION tokenlock_holders() IS
'rows of the view token_holders';

CREATE VIEW token_holders AS
    SELECT * FROM tokenlock_holders();

COMMENT ON VIEW token_holders IS
'who holds which token of this database at the moment';

CREATE FUNCTION tokenlock_waiters(
    OUT name text,
    OUT place bigint,
    OUT owner text,
    OUT role name,
    OUT pid integer,
    OUT waiting_since timestamptz,
    OUT deadline timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'tokenlock_waiters';

COMMENT ON FUNCTION tokenlock_waiters() IS
'rows of the view token_waiters';

CREATE VIEW token_waiters AS
    SELECT * FROM tokenlock_waiters();

COMMENT ON VIEW token_waiters IS
'who waits for which token of this database, in the order in which they will be served';

GRANT SELECT ON token_holders, token_waiters TO PUBLIC;
