-- Named owners: leases that belong to a role and a name, not to a session.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
DROP ROLE IF EXISTS regress_tl_r1, regress_tl_r2;
RESET client_min_messages;
CREATE ROLE regress_tl_r1;
CREATE ROLE regress_tl_r2;

-- P03: two callers on one connection exclude each other.
SELECT token_get('k', owner => 'req-1');
SELECT token_get('k', owner => 'req-2');
SELECT token_get('k');
SELECT token_put('k', owner => 'req-2');
SELECT token_put('k');
SELECT token_put('k', owner => 'req-1');
-- A session hold keeps named owners out in the same way.
SELECT token_get('k');
SELECT token_get('k', owner => 'req-1');
SELECT token_put('k', owner => 'req-1');
SELECT token_put('k');

-- P48: a lease without a ttl of its own ends after tokenlock.default_ttl.
SELECT token_get('d', owner => 'w1');
SELECT expires_at - acquired_at BETWEEN
    current_setting('tokenlock.default_ttl')::interval - '5ms'::interval AND
    current_setting('tokenlock.default_ttl')::interval + '5ms'::interval
    AS default_ttl, scope, owner
FROM token_holders WHERE name = 'd';
SELECT token_put('d', owner => 'w1');

-- P52: one process takes it, another gives it back.
SELECT token_get('k', ttl => '60s', owner => 'order-17');
SELECT token_fence('k', owner => 'order-17') AS f1 \gset
\c -
SELECT token_fence('k', owner => 'order-17') = :f1 AS same_fence;
SELECT granted, fence = :f1 AS same_fence, answer
FROM token_request('k', owner => 'order-17');
SELECT token_renew('k', '60s', owner => 'order-17');
SELECT token_put('k', owner => 'order-17');
SELECT token_get('k');
SELECT token_put('k');

-- The fence alone names a lease of the same role; a wrong owner does not.
SELECT fence AS f1 FROM token_request('k', ttl => '1h', owner => 'w1') \gset
SELECT token_renew('k', owner => 'w2', fence => :f1);
SELECT token_put('k', owner => 'w2', fence => :f1);
SELECT token_renew('k', fence => :f1 + 1);
SELECT token_renew('k', fence => :f1);
SELECT token_put('k', fence => :f1);
SELECT token_put('k', fence => :f1);

-- P54: an owner name is no password: the role is part of the owner.
SET ROLE regress_tl_r1;
SELECT granted, fence AS f1 FROM token_request('k', owner => 'w1') \gset
SELECT :'granted' AS granted;
SET ROLE regress_tl_r2;
SELECT token_put('k', owner => 'w1');
SELECT token_renew('k', '1h', owner => 'w1');
SELECT token_fence('k', owner => 'w1');
SELECT token_get('k', owner => 'w1');
SELECT token_put('k', fence => :f1);
SELECT token_renew('k', fence => :f1);
SELECT token_put_all(owner => 'w1');
SET ROLE regress_tl_r1;
SELECT token_fence('k', owner => 'w1') = :f1 AS still_held;
SELECT token_put('k', owner => 'w1');
RESET ROLE;

-- A session's grant is the session's, whatever role it has by then.
SET ROLE regress_tl_r1;
SELECT token_get('s');
SET ROLE regress_tl_r2;
SELECT token_get('s'), token_fence('s') IS NOT NULL AS held;
SELECT role FROM token_holders;
RESET ROLE;
SELECT role FROM token_holders WHERE name = 's';
SELECT token_put('s');

-- A name that is somebody's token is free again for all roles afterwards.
SELECT token_get('k', owner => 'w1');
SELECT token_put('k', owner => 'w1');
DROP ROLE regress_tl_r1, regress_tl_r2;
