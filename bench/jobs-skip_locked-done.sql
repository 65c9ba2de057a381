WITH done AS (
	UPDATE job_skip_locked SET status = '1' WHERE id = ANY (:ids::bigint[])),
claimed AS (
	UPDATE job_skip_locked SET status = '2', sid = 'w' || :client_id
	WHERE id IN (
		SELECT id FROM job_skip_locked WHERE status = '0'
		ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED)
	RETURNING *)
SELECT coalesce(array_agg(id), '{}') AS ids, count(content) AS n FROM claimed
\gset
