-- token_break: who may take a token away, and what it does.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;

DROP ROLE IF EXISTS regress_tl_alice, regress_tl_bob, regress_tl_signal,
    regress_tl_owner;
RESET client_min_messages;
CREATE ROLE regress_tl_alice;
CREATE ROLE regress_tl_bob;
CREATE ROLE regress_tl_signal IN ROLE pg_signal_backend;
CREATE ROLE regress_tl_owner;

-- A lease: it is gone at once, and its owner finds out.
SET ROLE regress_tl_alice;
SELECT token_get('k', owner => 'w1', ttl => '1h');
SELECT token_fence('k', owner => 'w1') AS f1 \gset
SET ROLE regress_tl_signal;
SELECT token_break('k', :f1 + 1), token_break('other', :f1);
SELECT token_break('k', :f1);
SELECT token_break('k', :f1);
SET ROLE regress_tl_alice;
SELECT token_fence('k', owner => 'w1'), token_renew('k', owner => 'w1'),
    token_put('k', owner => 'w1');
SELECT token_guard('k', owner => 'w1');
SELECT token_get('k', owner => 'w2');
-- The old number does no harm to the next grant.
SET ROLE regress_tl_signal;
SELECT token_break('k', :f1);
SET ROLE regress_tl_alice;
SELECT token_put('k', owner => 'w2');

-- A session's token, one of a transaction, a permit, a shared hold.
SELECT token_get('s'), token_get('p', capacity => 2),
    token_get('h', shared => true);
SELECT token_get('p', capacity => 2, owner => 'w1'),
    token_get('h', shared => true, owner => 'w1');
BEGIN;
SELECT token_get('t', scope => 'transaction');
SELECT token_fence('s') AS fs, token_fence('p') AS fp, token_fence('h') AS fh,
    token_fence('t') AS ft \gset
SET LOCAL ROLE regress_tl_signal;
SELECT token_break('s', :fs), token_break('p', :fp), token_break('h', :fh),
    token_break('t', :ft);
SET LOCAL ROLE regress_tl_alice;
SELECT name, owner, scope FROM token_holders ORDER BY name;
SELECT token_put('s'), token_put('p'), token_put('h'), token_put('t');
SELECT token_get('s', owner => 'w1'), token_get('t', owner => 'w1');
-- The end of its former holder's transaction gives back nothing of others.
COMMIT;
SELECT name, owner, scope FROM token_holders ORDER BY name;
SELECT token_put_all(), token_put_all(owner => 'w1');
-- The session whose token was broken can take it again.
SELECT token_get('s');
SELECT token_fence('s') AS fs \gset
SET ROLE regress_tl_signal;
SELECT token_break('s', :fs);
SET ROLE regress_tl_alice;
SELECT answer FROM token_request('s');
SELECT token_put('s');

-- A guard: the commit fails, whoever holds it then.
SELECT token_get('g', owner => 'w1', ttl => '1h');
SELECT token_fence('g', owner => 'w1') AS fg \gset
BEGIN;
SELECT token_guard('g', owner => 'w1') = :fg AS guarded;
SET LOCAL ROLE regress_tl_signal;
SELECT token_break('g', :fg);
COMMIT;

-- Who may not: anybody else, though it be the holder or a member of its role.
SET ROLE regress_tl_alice;
SELECT token_get('k', owner => 'w1', ttl => '1h');
SELECT token_fence('k', owner => 'w1') AS f1 \gset
SELECT token_break('k', :f1);
SET ROLE regress_tl_bob;
SELECT token_break('k', :f1);
SELECT token_break('nothing', 1);
-- P54: another role's owner name opens nothing.
SELECT token_put('k', owner => 'w1'), token_renew('k', '1h', owner => 'w1'),
    token_fence('k', owner => 'w1'), token_get('k', owner => 'w1'),
    token_put('k', fence => :f1);
SELECT token_guard('k', fence => :f1);
SELECT token_guard('k', owner => 'w1', fence => :f1);
SELECT token_put_all(owner => 'w1');
RESET ROLE;
SELECT token_fence('k', owner => 'w1') IS NULL AS not_mine_either;

-- The database's owner may.
SELECT datdba::regrole AS dba FROM pg_database WHERE datname = current_database() \gset
SELECT format('ALTER DATABASE %I OWNER TO regress_tl_owner', current_database()) \gexec
SET ROLE regress_tl_owner;
SELECT token_break('k', :f1);
RESET ROLE;
SELECT format('ALTER DATABASE %I OWNER TO %I', current_database(), :'dba') \gexec
SET ROLE regress_tl_owner;
SELECT token_break('k', :f1);
RESET ROLE;

-- A superuser's token only superusers break.
SELECT token_get('k', owner => 'w1', ttl => '1h');
SELECT token_fence('k', owner => 'w1') AS f1 \gset
SET ROLE regress_tl_signal;
SELECT token_break('k', :f1);
RESET ROLE;
SELECT token_break('k', :f1);

-- A lapsed one is not there to be broken.
SELECT token_get('k', owner => 'w1', ttl => '1ms');
SELECT pg_sleep(0.01);
SELECT token_break('k', :f1 + 1);

-- Bad values.
SELECT token_break('k', NULL);
SELECT token_break(NULL, 1);
SELECT token_break('', 1);
SELECT token_break('k', 0);
SELECT token_break('k', -1);
DROP ROLE regress_tl_alice, regress_tl_bob, regress_tl_signal,
    regress_tl_owner;
SELECT * FROM token_holders;
