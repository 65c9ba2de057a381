/*
 * bench/jobs-wake.sql
 *
 * One table for each way of telling workers of a job, all alike.
 */

CREATE TABLE job_none (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	content text NOT NULL,
	status char(1) NOT NULL DEFAULT '0',
	sid text
);
CREATE TABLE job_wake (LIKE job_none INCLUDING ALL);
CREATE TABLE job_notify (LIKE job_none INCLUDING ALL);

SELECT job_table_set('job_wake', wake => true);

CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NOTIFY job_notify;
	RETURN NULL;
END $$;
CREATE TRIGGER tell AFTER INSERT ON job_notify
	FOR EACH STATEMENT EXECUTE FUNCTION tell();
