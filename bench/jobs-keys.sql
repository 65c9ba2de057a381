/*
 * bench/jobs-keys.sql
 *
 * Tables alike: one with the indexes for keys; one that has a key column, too;
 * another one also a long job of one key, with many others behind it, in front
 * of all.
 */

CREATE TABLE job_no_keys (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	content text NOT NULL,
	receivers text NOT NULL,
	customer text DEFAULT 'customer ' || floor(random() * current_setting('bench.keys')::float8),
	status char(1) NOT NULL DEFAULT '0',
	sid text
);
CREATE TABLE job_index (LIKE job_no_keys INCLUDING ALL);
CREATE INDEX ON job_index (customer, status, id) WHERE status IN ('0', '2');
CREATE INDEX ON job_index (sid, id) WHERE status = '2';

CREATE TABLE job_keys (LIKE job_index INCLUDING ALL);
SELECT job_table_set('job_keys', key_column => 'customer');

CREATE TABLE job_long_job (LIKE job_keys INCLUDING ALL);
SELECT job_table_set('job_long_job', key_column => 'customer', ttl => '1 day');

/* Empty a table, but for the long job. */
CREATE PROCEDURE begin(job_table regclass) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('TRUNCATE %s', job_table);
	IF job_table = 'job_long_job'::regclass THEN
		INSERT INTO job_long_job (content, receivers, customer)
			SELECT 'one of many', 'many', 'the busiest'
			FROM generate_series(1, 100000);
		PERFORM claim_jobs(NULL::job_long_job, 'busy', 1);
	END IF;
END $$;
