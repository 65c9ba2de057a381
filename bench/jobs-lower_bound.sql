WITH done AS (
	UPDATE job_lower_bound SET status = '1' WHERE id = ANY (:ids::bigint[])),
claimed AS (
	UPDATE job_lower_bound SET status = '2', sid = 'w' || :client_id
	WHERE id IN (
		SELECT id FROM job_lower_bound WHERE status = '0' AND id > :low
		ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED)
	RETURNING *)
SELECT coalesce(array_agg(id), '{}') AS ids, count(content) AS n,
	coalesce(max(id), :low) AS low FROM claimed
\gset
