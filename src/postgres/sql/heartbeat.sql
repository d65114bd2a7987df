-- Purpose: the worker's next heartbeat, as a new version. Rows: one in, those before it out.
WITH before AS (
    DELETE FROM lanekeeper.worker AS w WHERE w.worker_id = $1 RETURNING w.version, w.started_at
)
INSERT INTO lanekeeper.worker (worker_id, version, started_at, host, pid, release, state)
SELECT $1, coalesce(max(b.version), 0) + 1, coalesce(min(b.started_at), clock_timestamp()), $2, $3, $4, $5
FROM before AS b
