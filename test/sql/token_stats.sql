-- token_stats and token_stats_by_name.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;

DROP ROLE IF EXISTS regress_tl_alice, regress_tl_monitor;
RESET client_min_messages;
CREATE ROLE regress_tl_alice;
CREATE ROLE regress_tl_monitor IN ROLE pg_monitor;

SELECT attrelid::regclass AS view, attname, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid IN ('token_stats'::regclass, 'token_stats_by_name'::regclass)
    AND attname IN ('name', 'gets', 'grants', 'refusals', 'waits',
        'wait_time', 'timeouts', 'expiries', 'puts', 'breaks', 'entries',
        'memory', 'grace_until', 'longest_wait', 'longest_hold')
ORDER BY attrelid::regclass::text COLLATE "C", attname COLLATE "C";

-- What the calls of this session add, one kind after the other.  A database
-- of its own would be quieter, but nobody else calls here.
CREATE TEMP TABLE s AS SELECT * FROM token_stats;
CREATE FUNCTION pg_temp.more() RETURNS TABLE (what text, n bigint)
LANGUAGE plpgsql AS $$
DECLARE
	now_ token_stats%ROWTYPE;
	was s%ROWTYPE;
BEGIN
	SELECT * INTO now_ FROM token_stats;
	SELECT * INTO was FROM s;
	UPDATE s SET (gets, grants, refusals, waits, wait_time, timeouts,
		expiries, puts, breaks, entries, memory, grace_until) = (SELECT now_.*);
	RETURN QUERY SELECT * FROM (VALUES
		('gets', now_.gets - was.gets), ('grants', now_.grants - was.grants),
		('refusals', now_.refusals - was.refusals),
		('waits', now_.waits - was.waits),
		('timeouts', now_.timeouts - was.timeouts),
		('expiries', now_.expiries - was.expiries),
		('puts', now_.puts - was.puts), ('breaks', now_.breaks - was.breaks),
		('entries', now_.entries - was.entries)) v (w, d) WHERE d <> 0;
END $$;
SELECT token_get('sa'), token_get('sb', owner => 'w1', ttl => '1h');
SELECT * FROM pg_temp.more();
-- Again: a get, but no grant and no refusal.
SELECT token_get('sa');
SELECT * FROM pg_temp.more();
SELECT token_get('sa', owner => 'w1');
SELECT * FROM pg_temp.more();
SELECT token_get('sa', owner => 'w1', wait => '20ms');
SELECT * FROM pg_temp.more();
SELECT wait_time BETWEEN '20ms' AND '10s' AS waited,
    longest_wait BETWEEN '20ms' AND '10s' AS longest, longest_wait = wait_time AS once
FROM token_stats_by_name WHERE name = 'sa';
SELECT token_put('sa'), token_put('sa'), token_put('sb', owner => 'w2');
SELECT * FROM pg_temp.more();
SELECT token_break('sb', token_fence('sb', owner => 'w1'));
SELECT * FROM pg_temp.more();
SELECT token_get('sc', owner => 'w1', ttl => '1ms');
SELECT * FROM pg_temp.more();
SELECT pg_sleep(0.01);
SELECT token_fence('sc', owner => 'w1');
SELECT * FROM pg_temp.more();
SELECT longest_hold FROM token_stats_by_name WHERE name = 'sc';
-- A procedure's call is one get.
SELECT token_get('d', owner => 'w1', ttl => '1h');
SELECT * FROM pg_temp.more();
CALL token_acquire('d', wait => '10ms');
SELECT * FROM pg_temp.more();
CALL token_acquire('d', wait => '0');
SELECT * FROM pg_temp.more();
SELECT token_put('d', owner => 'w1');
SELECT token_get_all('{d,e}'), token_put_all();
SELECT * FROM pg_temp.more();
-- An error of a wait is neither a grant nor a timeout of ours.
SELECT token_get('d', owner => 'w1', ttl => '1h');
SELECT count(*) >= 0 AS seen FROM pg_temp.more();
SET lock_timeout = '10ms';
SELECT token_get('d', wait => NULL);
RESET lock_timeout;
SELECT * FROM pg_temp.more();
SELECT token_put('d', owner => 'w1');
-- What is rolled back has happened.
SELECT count(*) >= 0 AS seen FROM pg_temp.more();
BEGIN;
SELECT token_get('sr', scope => 'transaction');
SELECT pg_sleep(0.1);
ROLLBACK;
SELECT * FROM pg_temp.more();
-- within a tick of the kernel's clock
SELECT gets, grants, puts, longest_hold > '80ms' AS held
FROM token_stats_by_name WHERE name = 'sr';

-- By name, with what this transaction has done so far.
BEGIN;
SELECT bool_and(token_get('sn') AND token_put('sn')) FROM generate_series(1, 100);
SELECT gets, grants, puts, refusals FROM token_stats_by_name WHERE name = 'sn';
COMMIT;
SELECT name, gets, grants, refusals, waits, timeouts, expiries, puts, breaks
FROM token_stats_by_name WHERE name IN ('sa', 'sb', 'sc', 'sn')
ORDER BY name COLLATE "C";
SELECT memory > 0 AS in_use FROM token_stats;

-- The busiest names stay, however many others come.
SELECT bool_and(token_get('few ' || i) AND token_get('few ' || i) AND token_put('few ' || i))
FROM generate_series(1, 3000) i;
SELECT bool_and(token_get('sn') AND token_put('sn')) FROM generate_series(1, 100);
SELECT bool_and(token_get('few ' || i) AND token_get('few ' || i) AND token_put('few ' || i))
FROM generate_series(1, 3000) i;
SELECT count(*) BETWEEN 100 AND 3000 AS bounded,
    count(*) FILTER (WHERE name = 'sn') AS busy FROM token_stats_by_name;

-- Everybody sees the totals; names only who may read all statistics.
SET ROLE regress_tl_alice;
SELECT gets > 0 AS gets FROM token_stats;
SELECT count(*) > 0 AS rows, count(*) FILTER (WHERE name <> '<insufficient privilege>') AS names
FROM token_stats_by_name;
SET ROLE regress_tl_monitor;
SELECT name FROM token_stats_by_name WHERE name = 'sn';
RESET ROLE;
DROP ROLE regress_tl_alice, regress_tl_monitor;
