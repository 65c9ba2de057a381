-- examples/worker.sql
--
-- A worker in SQL, for work that the database itself can do, for you to copy
-- from.  The table "jobs" is as tokenlock has it by default: an id, status,
-- sid; here it has a column "task" as well.
--
-- Each job's work and its finish are one transaction, so it is done exactly
-- once, also when a worker dies, or is so slow that others get its jobs.
--
-- Start some, each in a session of its own:
--
--     psql -c "CALL work_on_jobs('sql-1')"
--
-- Each call for a job restarts the lease, so ttl must be longer than one job.
-- A job that fails comes again at once, unless the table has attempts, a limit
-- of them, and a time for the next one (job_table_set).
--
-- Each waits for jobs as long as its patience lasts, and ends then.  To stop
-- one before, cancel it: its next start under the same sid goes on with what
-- it had, else others get that when it has lapsed.

CREATE TABLE job_results (job bigint, worker text, result text);

-- Your work.  An error means that the job has failed, and is undone.
CREATE PROCEDURE work_on_job(job jobs)
LANGUAGE plpgsql AS $$
BEGIN
    IF job.task = 'fail' THEN
        RAISE 'this one never works';
    END IF;
    INSERT INTO job_results VALUES (job.id, job.sid, upper(job.task));
END $$;

CREATE PROCEDURE work_on_jobs(sid text, batch bigint DEFAULT 10,
    ttl interval DEFAULT '1 min', patience interval DEFAULT '10 s')
LANGUAGE plpgsql AS $$
DECLARE
    claimed jobs[];
    job jobs;
    problem text;
    ready boolean;
BEGIN
    LOOP
        -- Others see what is claimed once that is committed.
        claimed := ARRAY(
            SELECT j FROM claim_jobs(NULL::jobs, work_on_jobs.sid, batch,
                ttl => work_on_jobs.ttl) j);
        COMMIT;

        IF cardinality(claimed) = 0 THEN
            CALL wait_jobs('jobs', patience, ready);
            EXIT WHEN NOT ready;
        END IF;

        FOREACH job IN ARRAY claimed LOOP
            problem := NULL;
            BEGIN
                CALL work_on_job(job);
                -- Late, and another worker has it by now?  Then leave it to
                -- that one, and undo what was done here.
                IF finish_jobs('jobs', sid, ARRAY[job.id]) = 0 THEN
                    RAISE 'job % was lost', job.id USING ERRCODE = 'TL000';
                END IF;
            EXCEPTION
                WHEN SQLSTATE 'TL000' THEN
                    RAISE NOTICE '%', SQLERRM;
                WHEN OTHERS THEN
                    problem := SQLERRM;
            END;
            IF problem IS NOT NULL THEN
                PERFORM fail_jobs('jobs', sid, ARRAY[job.id], error => problem);
            END IF;
            COMMIT;
        END LOOP;
    END LOOP;
END $$;
