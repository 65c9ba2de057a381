SELECT coalesce(array_agg(id), '{}') AS ids, count(content) AS n
FROM claim_jobs(NULL::job_claim, 'w' || :client_id, :batch)
\gset
SELECT finish_jobs('job_claim', 'w' || :client_id, :ids::bigint[]);
