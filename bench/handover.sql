/*
 * bench/handover.sql
 *
 * Milliseconds from a lease's end to the return of a call that waited for it.
 */

CREATE FUNCTION expiry(tries integer) RETURNS SETOF float8
LANGUAGE plpgsql AS $$
DECLARE
	ends timestamptz;
BEGIN
	FOR i IN 1..tries LOOP
		SELECT expires_at INTO ends
			FROM token_request('e', ttl => '25 ms', owner => 'one');
		IF NOT token_get('e', wait => '10 s', owner => 'two') THEN
			RAISE EXCEPTION 'not granted';
		END IF;
		RETURN NEXT 1000 * extract(epoch FROM clock_timestamp() - ends);
		PERFORM token_put('e', owner => 'two');
	END LOOP;
END $$;
