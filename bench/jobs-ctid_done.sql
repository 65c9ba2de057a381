WITH done AS (
	UPDATE job_ctid_done SET status = '1' WHERE id = ANY (:ids::bigint[])),
claimed AS (
	UPDATE job_ctid_done SET status = '2', sid = 'w' || :client_id
	WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM job_ctid_done WHERE status = '0'
		ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED))
	RETURNING *)
SELECT coalesce(array_agg(id), '{}') AS ids, count(content) AS n FROM claimed
\gset
