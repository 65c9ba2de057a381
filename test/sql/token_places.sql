-- A place in line that needs no connection.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tokenlock;
RESET client_min_messages;

-- P06: places are served in their order, to who asks again.
SELECT token_get('k', owner => 'h', ttl => '1h');
SELECT granted, fence, expires_at, answer, place
FROM token_request('k', owner => 'w2', keep_place => '1h');
SELECT granted, fence, expires_at, answer, place
FROM token_request('k', owner => 'w3', keep_place => '1h');
SELECT place, owner, role = current_user AS mine, pid,
    deadline - waiting_since BETWEEN '59min' AND '61min' AS an_hour
FROM token_waiters ORDER BY place;
-- Asked again, the place is the same.
SELECT answer, place FROM token_request('k', owner => 'w3', keep_place => '1h');
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
-- Who has a place and does not mention it keeps it.
SELECT answer, place FROM token_request('k', owner => 'w3');
SELECT token_get('k', owner => 'w3');
SELECT count(*) FROM token_waiters;
-- Without a place nobody is told one.
SELECT answer, place FROM token_request('k', owner => 'w4');
\c -
SELECT place, owner FROM token_waiters ORDER BY place;
-- The token is free, and to be had by the first in line only.
SELECT token_put('k', owner => 'h');
SELECT token_get('k');
SELECT token_get('k', owner => 'h');
SELECT answer, place FROM token_request('k', owner => 'w3', keep_place => '1h');
SELECT answer, place FROM token_request('k', owner => 'w4', keep_place => '1h');
SELECT granted, fence IS NOT NULL AS fence, answer, place
FROM token_request('k', owner => 'w2', keep_place => '1h');
SELECT place, owner FROM token_waiters ORDER BY place;
-- Its place went with the grant: a new one is at the end.
SELECT token_put('k', owner => 'w2');
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
-- keep_place may be left out when the turn has come.
SELECT token_get('k', owner => 'w3');
SELECT token_put('k', owner => 'w3');
SELECT token_get('k', owner => 'w4', keep_place => '1h');
SELECT token_put('k', owner => 'w4');
SELECT token_get('k', owner => 'w2', keep_place => '1h');
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
SELECT token_put('k', owner => 'w2');
SELECT * FROM token_waiters;

-- A free token is granted, and no place is made.
SELECT answer, place FROM token_request('k', owner => 'w1', keep_place => '1h');
SELECT * FROM token_waiters;

-- A place that is not asked for again lapses, and holds nobody up.
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
SELECT answer, place FROM token_request('k', owner => 'w3', keep_place => '1h');
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '50ms');
SELECT answer FROM token_request('k', owner => 'w1');
SELECT token_put('k', owner => 'w1');
SELECT answer, place FROM token_request('k', owner => 'w3', wait => '10s', keep_place => '1h');
SELECT * FROM token_waiters;
SELECT token_put('k', owner => 'w3');
-- Nor does the last one.
SELECT token_get('k', owner => 'w1');
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '50ms');
SELECT token_put('k', owner => 'w1');
SELECT token_get('k', wait => '10s');
SELECT count(*) FROM token_waiters;
SELECT token_put('k');

-- After a wait that was too short the place is kept, too.
SELECT token_get('k', owner => 'w1');
SELECT answer, place
FROM token_request('k', owner => 'w2', wait => '10ms', keep_place => '1h');
SELECT place, owner, pid FROM token_waiters;
-- It can be shortened, and lengthened.
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1min');
SELECT deadline < now() + '2min' AS shorter FROM token_waiters;
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
SELECT deadline > now() + '58min' AS longer FROM token_waiters;
SELECT token_put('k', owner => 'w1');
SELECT token_get('k', owner => 'w2');
SELECT token_put('k', owner => 'w2');

-- The same owner name of another role is another owner.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_tl_place;
RESET client_min_messages;
CREATE ROLE regress_tl_place;
SELECT token_get('k', owner => 'w1');
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
SET ROLE regress_tl_place;
SELECT answer, place FROM token_request('k', owner => 'w2', keep_place => '1h');
SELECT place, name, owner, role FROM token_waiters ORDER BY place;
RESET ROLE;
SELECT token_put('k', owner => 'w1');
SET ROLE regress_tl_place;
SELECT token_get('k', owner => 'w2');
RESET ROLE;
SELECT token_get('k', owner => 'w2');
SELECT token_put('k', owner => 'w2');
SET ROLE regress_tl_place;
SELECT token_get('k', owner => 'w2');
SELECT token_put('k', owner => 'w2');
RESET ROLE;
DROP ROLE regress_tl_place;

-- Places for permits and shared holds.
SELECT token_get('k', owner => 'w1');
SELECT answer, place
FROM token_request('k', owner => 'w2', capacity => 2, keep_place => '1h');
SELECT answer, place
FROM token_request('k', owner => 'w3', shared => true, keep_place => '1h');
SELECT token_put('k', owner => 'w1');
SELECT token_get('k', owner => 'w3', shared => true);
SELECT token_get('k', owner => 'w2', capacity => 2);
SELECT token_get('k', owner => 'w3', shared => true);
SELECT token_put('k', owner => 'w2');
SELECT token_get('k', owner => 'w3', shared => true);
SELECT token_put('k', owner => 'w3');
SELECT * FROM token_waiters;

-- Who has no owner cannot keep a place, and none is kept for no time.
SELECT token_get('k', keep_place => '1s');
SELECT token_get('k', scope => 'transaction', keep_place => '1s');
SELECT token_get('k', owner => 'w1', keep_place => '0');
SELECT token_get('k', owner => 'w1', keep_place => '-1s');
-- Nobody can take a place away, so it cannot be kept for long.
SELECT token_get('k', owner => 'w1', keep_place => '61min');
SELECT * FROM token_holders;
