/*
 * bench/jobs.sql
 *
 * One table for each way of working on it, all alike.
 */

CREATE TABLE job_skip_locked (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	content text NOT NULL,
	receivers text NOT NULL,
	status char(1) NOT NULL DEFAULT '0',
	sid text
);
CREATE INDEX ON job_skip_locked (id) WHERE status = '0';

CREATE TABLE job_ctid (LIKE job_skip_locked INCLUDING ALL);
CREATE TABLE job_ctid_done (LIKE job_skip_locked INCLUDING ALL);
CREATE TABLE job_claim (LIKE job_skip_locked INCLUDING ALL);
CREATE TABLE job_done (LIKE job_skip_locked INCLUDING ALL);
CREATE TABLE job_lower_bound (LIKE job_skip_locked INCLUDING ALL);

/* Add jobs until so many are ready.  A table that was empty is analyzed. */
CREATE PROCEDURE fill(job_table regclass, jobs integer) LANGUAGE plpgsql AS $$
DECLARE
	ready integer;
BEGIN
	EXECUTE format($q$SELECT count(*) FROM %s WHERE status = '0'$q$, job_table)
		INTO ready;
	EXECUTE format($q$
		INSERT INTO %s (content, receivers)
		SELECT repeat('some words of a message ', 1 + g %% 5), '+86 138 ' || g
		FROM generate_series(1, $1) AS g$q$, job_table) USING jobs - ready;
	IF ready = 0 THEN
		EXECUTE format('ANALYZE %s', job_table);
	END IF;
END $$;
