/*
 * bench/jobs-cost.sql
 *
 * Tables with many rows of one state, and procedures that time claims in them.
 */

CREATE UNLOGGED TABLE took (kind text, round integer, ms float8, pages bigint);

/* A table with so many rows done, ready, or held by others. */
CREATE PROCEDURE make(name text, state text, rows integer)
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		content text NOT NULL,
		status char(1) NOT NULL DEFAULT ''0'',
		sid text)', name);
	EXECUTE format('INSERT INTO %I (content, status, sid)
		SELECT ''some words of a message'', $1,
			CASE WHEN $1 = ''2'' THEN ''other '' || g %% 100 END
		FROM generate_series(1, $2) AS g', name)
		USING CASE state WHEN 'done' THEN '1' WHEN 'ready' THEN '0'
			WHEN 'held' THEN '2' END, rows;
	EXECUTE format('CREATE INDEX ON %I (id) WHERE status = ''0''', name);
	EXECUTE format('CREATE INDEX ON %I (sid) WHERE status = ''2''', name);
	-- the others do not lapse while this is measured
	PERFORM job_table_set(name::regclass, ttl => '1 day');
END $$;

/* Time one claim of 10, and count the pages of another. */
CREATE PROCEDURE time_claim(name text, round integer) LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[];
	started timestamptz;
	ms float8;
	plan json;
BEGIN
	EXECUTE format('INSERT INTO %I (content)
		SELECT ''a new job'' FROM generate_series(1, 20)', name);
	COMMIT;

	started := clock_timestamp();
	EXECUTE format('SELECT array_agg(id)
		FROM claim_jobs(NULL::%I, ''timed'', 10)', name) INTO ids;
	ms := 1000 * extract(epoch FROM clock_timestamp() - started);
	IF cardinality(ids) IS DISTINCT FROM 10 THEN
		RAISE EXCEPTION '% jobs were claimed', cardinality(ids);
	END IF;
	COMMIT;
	PERFORM finish_jobs(name::regclass, 'timed', ids);
	COMMIT;

	EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT json)
		SELECT FROM claim_jobs(NULL::%I, ''timed'', 10)', name) INTO plan;
	COMMIT;
	EXECUTE format('SELECT finish_jobs($1, ''timed'', array_agg(id)) FROM %I
		WHERE status = ''2'' AND sid = ''timed''', name)
		USING name::regclass;
	COMMIT;

	-- the first rounds make plans, and get to know the table
	IF round > 0 THEN
		INSERT INTO took SELECT replace(name, 'cost_', '') || ' rows', round,
			ms, (plan->0->'Plan'->>'Shared Hit Blocks')::bigint +
				(plan->0->'Plan'->>'Shared Read Blocks')::bigint;
	END IF;
END $$;

CREATE PROCEDURE time_claims(names text[], claims integer)
LANGUAGE plpgsql AS $$
DECLARE
	name text;
BEGIN
	FOR round IN -9..claims LOOP
		FOREACH name IN ARRAY names LOOP
			CALL time_claim(name, round);
		END LOOP;
	END LOOP;
END $$;
