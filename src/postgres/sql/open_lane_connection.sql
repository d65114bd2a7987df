-- Purpose: register this session as one that will hold lane locks, under a lock of its own that
-- shows whether it lives. Rows: one.
WITH opened AS (
    INSERT INTO lanekeeper.lane_connection (worker_id, backend_pid, backend_start, epoch)
    SELECT $1, a.pid, a.backend_start, e.epoch
    FROM pg_catalog.pg_stat_activity AS a CROSS JOIN lanekeeper.server_epoch AS e
    WHERE a.pid = pg_backend_pid()
    RETURNING connection_id
)
SELECT o.connection_id, pg_advisory_lock(lanekeeper.connection_lock(o.connection_id)) FROM opened AS o
