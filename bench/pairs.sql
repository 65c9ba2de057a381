/*
 * bench/pairs.sql
 *
 * Functions that time pairs of get and put inside the server.
 */

/* As one would write it: the answers are looked at. */

CREATE FUNCTION loop_advisory(n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		IF NOT pg_try_advisory_lock(42) THEN
			RAISE 'not had';
		END IF;
		IF NOT pg_advisory_unlock(42) THEN
			RAISE 'not held';
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION loop_session(n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		IF NOT token_get('k') THEN
			RAISE 'not had';
		END IF;
		IF NOT token_put('k') THEN
			RAISE 'not held';
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION loop_lease(n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		IF NOT token_get('k', owner => 'w') THEN
			RAISE 'not had';
		END IF;
		IF NOT token_put('k', owner => 'w') THEN
			RAISE 'not held';
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION loop_nothing(n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		IF txid_current_if_assigned() IS NOT NULL THEN
			RAISE 'there is a transaction id';
		END IF;
		IF txid_current_if_assigned() IS NOT NULL THEN
			RAISE 'there is a transaction id';
		END IF;
	END LOOP;
END $$;

/*
 * Nanoseconds a pair, of each form and kind in each round.  Each round begins
 * with another kind, and the first, to warm up, is not told.
 */
CREATE FUNCTION bench_pairs(rounds integer, pairs integer,
	OUT form text, OUT kind text, OUT round integer, OUT ns numeric)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	kinds text[] := '{advisory,session,lease,new names,nothing}';
	conditions text[] := ARRAY[
		$c$pg_try_advisory_lock(42) AND pg_advisory_unlock(42)$c$,
		$c$token_get('k') AND token_put('k')$c$,
		$c$token_get('k', owner => 'w') AND token_put('k', owner => 'w')$c$,
		$c$token_get('k' || g, owner => 'w') AND token_put('k' || g, owner => 'w')$c$,
		$c$txid_current_if_assigned() IS NULL AND txid_current_if_assigned() IS NULL$c$];
	which integer;
	started timestamptz;
	counted bigint;
BEGIN
	FOR r IN 0..rounds LOOP
		round := r;
		FOR i IN 1..5 LOOP
			which := 1 + (i + r) % 5;
			kind := kinds[which];

			form := 'one SQL statement';
			started := clock_timestamp();
			EXECUTE format('SELECT count(*) FROM generate_series(1, %s) AS g WHERE %s',
				pairs, conditions[which]) INTO counted;
			ns := extract(epoch FROM clock_timestamp() - started) * 1e9 / pairs;
			IF counted <> pairs THEN
				RAISE EXCEPTION '% of % pairs were had', counted, pairs;
			END IF;
			IF r > 0 THEN
				RETURN NEXT;
			END IF;

			CONTINUE WHEN kind = 'new names';
			form := 'PL/pgSQL loop';
			started := clock_timestamp();
			EXECUTE format('SELECT loop_%s($1)', kind) USING pairs;
			ns := extract(epoch FROM clock_timestamp() - started) * 1e9 / pairs;
			IF r > 0 THEN
				RETURN NEXT;
			END IF;
		END LOOP;
	END LOOP;
END $$;
