-- Purpose: enter the connection of a source's new holder, and keep how far the source is. No row: the source, or this
-- version of it, is gone. Index: the keys of source and source_poll. Rows: one.
INSERT INTO lanekeeper.source_poll AS p (source_id, worker_id, backend_pid, backend_start, alive_at)
SELECT s.source_id, $3::bigint, pg_backend_pid(), $4::timestamptz, clock_timestamp()
FROM lanekeeper.source AS s WHERE s.source_id = $1::int AND s.version = $2::bigint
ON CONFLICT ON CONSTRAINT source_poll_pkey DO UPDATE
SET worker_id = excluded.worker_id, backend_pid = excluded.backend_pid, backend_start = excluded.backend_start,
    alive_at = excluded.alive_at
RETURNING p.source_id
