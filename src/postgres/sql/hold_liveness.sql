-- Purpose: take the worker's liveness lock for this session, and wait for it no longer than $2 ms.
-- The one before may have it: a request that waits gets it as that session ends, and no survivor
-- finds it free between two tries. SQLSTATE 55P03 where it was not let go. Rows: one.
WITH bound AS MATERIALIZED (SELECT set_config('lock_timeout', $2::text, true))
SELECT pg_advisory_lock(lanekeeper.worker_lock($1::bigint)) FROM bound
