WITH claimed AS (
	UPDATE job_ctid SET status = '2', sid = 'w' || :client_id
	WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM job_ctid WHERE status = '0'
		ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED))
	RETURNING *)
SELECT coalesce(array_agg(id), '{}') AS ids, count(content) AS n FROM claimed
\gset
UPDATE job_ctid SET status = '1' WHERE id = ANY (:ids::bigint[]);
