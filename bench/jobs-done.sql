SELECT coalesce(array_agg(id), '{}') AS ids, count(content) AS n
FROM claim_jobs(NULL::job_done, 'w' || :client_id, :batch, done => :ids::bigint[])
\gset
