-- Leases: how they start, are kept, and lapse.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- The loop waits until a grant has lapsed, at most ten seconds.
CREATE FUNCTION pg_temp.lapse(k text, o text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    give_up timestamptz := clock_timestamp() + interval '10 s';
BEGIN
    WHILE token_fence(k, owner => o) IS NOT NULL LOOP
        IF clock_timestamp() > give_up THEN
            RETURN 'still held';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN 'lapsed';
END $$;

-- P35: the holder can find out, although nobody else has asked.
SELECT token_get('leader', ttl => '300ms', owner => 'n1');
SELECT pg_temp.lapse('leader', 'n1');
SELECT token_renew('leader', '10s', owner => 'n1');
SELECT token_put('leader', owner => 'n1');
SELECT count(*) FROM token_holders WHERE name = 'leader';
SELECT token_get('leader', ttl => '10s', owner => 'n2');
SELECT token_put('leader', owner => 'n2');

-- The same owner after the lapse: a new grant with a new fence.
SELECT fence AS f1 FROM token_request('k', ttl => '50ms', owner => 'a') \gset
SELECT pg_temp.lapse('k', 'a');
SELECT granted, fence > :f1 AS new_fence, answer
FROM token_request('k', ttl => '1h', owner => 'a');
SELECT token_put('k', owner => 'a', fence => :f1) AS old_grant;
SELECT token_put('k', owner => 'a') AS new_grant;

-- A session's grant may have a ttl, and then lapses although it lives on.
SELECT fence AS f1 FROM token_request('s', ttl => '1h') \gset
SELECT date_trunc('minute', expires_at - acquired_at + '1s') AS ttl, scope
FROM token_holders WHERE name = 's';
SELECT token_renew('s', '50ms');
SELECT pg_temp.lapse('s', NULL);
SELECT token_put('s'), token_renew('s'), token_renew('s', fence => :f1);
SELECT granted, fence > :f1 AS new_fence, answer FROM token_request('s');
SELECT token_put('s');

-- P43, last part: asking again restarts the lease's own ttl, not the default.
SELECT token_get('k', ttl => '1h', owner => 'w1');
SELECT expires_at AS e1 FROM token_holders WHERE name = 'k' \gset
SELECT token_get('k', owner => 'w1');
SELECT expires_at > :'e1' AS restarted,
       expires_at < clock_timestamp() + interval '1h 1s' AS own_ttl,
       expires_at > clock_timestamp() + interval '59min' AS not_default
FROM token_holders WHERE name = 'k';
-- A ttl that is given replaces it, upwards and downwards.
SELECT granted, answer, expires_at - clock_timestamp() > '90min' AS longer
FROM token_request('k', ttl => '2h', owner => 'w1');
SELECT granted, answer, expires_at - clock_timestamp() < '90s' AS shorter
FROM token_request('k', ttl => '1min', owner => 'w1');
SELECT token_renew('k', owner => 'w1');
SELECT expires_at - clock_timestamp() BETWEEN '30s' AND '61s' AS one_minute
FROM token_holders WHERE name = 'k';
SELECT token_renew('k', '30min', owner => 'w1');
SELECT expires_at - clock_timestamp() BETWEEN '29min' AND '31min' AS half_hour
FROM token_holders WHERE name = 'k';
SELECT token_put('k', owner => 'w1');

-- P44: a renewal that outlives the put extends nothing.
SELECT granted, fence AS f1
FROM token_request('k', ttl => '1h', owner => 'a') \gset
SELECT :'granted' AS granted, token_put('k', owner => 'a');
SELECT token_get('k', ttl => '2s', owner => 'b');
SELECT expires_at AS e1 FROM token_holders WHERE name = 'k' \gset
SELECT token_renew('k', '1h', owner => 'a');
SELECT expires_at - :'e1' BETWEEN '-50ms' AND '50ms' AS unchanged FROM token_holders WHERE name = 'k';
SELECT token_get('k', wait => '5s', owner => 'a');
SELECT clock_timestamp() > :'e1'::timestamptz - interval '10ms' AS not_early;
SELECT expires_at AS e2 FROM token_holders WHERE name = 'k' \gset
SELECT token_renew('k', '1h', owner => 'a', fence => :f1);
SELECT expires_at - :'e2' BETWEEN '-50ms' AND '50ms' AS unchanged FROM token_holders WHERE name = 'k';
SELECT token_put('k', owner => 'a', fence => :f1);
SELECT token_put('k', owner => 'a');

-- A session hold gets its first ttl by a renewal, or by asking again.
SELECT token_get('s');
SELECT token_renew('s');
SELECT expires_at FROM token_holders WHERE name = 's';
SELECT token_renew('s', '1h');
SELECT expires_at IS NOT NULL AS ends FROM token_holders WHERE name = 's';
SELECT token_put('s');
SELECT token_get('s');
SELECT answer, expires_at IS NOT NULL AS ends
FROM token_request('s', ttl => '1h');
SELECT token_put('s');

-- P47 without the guard: asked again 'again', and the fence stays.
SELECT granted, answer, fence AS f1
FROM token_request('k', ttl => '1h', owner => 'w1') \gset
SELECT :'answer' AS answer;
SELECT answer, fence = :f1 AS same
FROM token_request('k', ttl => '1h', owner => 'w1');
SELECT token_renew('k', owner => 'w1');
SELECT token_fence('k', owner => 'w1') = :f1 AS same;
SELECT token_put('k', owner => 'w1');

-- P51: the display follows the time zone, the lease does not.
SET timezone = 'UTC';
SELECT token_get('k', ttl => '1h', owner => 'w1');
SELECT expires_at::timestamp AS utc FROM token_holders \gset
SET timezone = 'Asia/Shanghai';
SELECT date_trunc('minute', expires_at::timestamp - :'utc'::timestamp + '1s')
    AS display
FROM token_holders;
SELECT token_fence('k', owner => 'w1') IS NOT NULL AS held;
SELECT expires_at - clock_timestamp() BETWEEN '59min' AND '61min' AS hour
FROM token_holders;
SELECT token_put('k', owner => 'w1');
