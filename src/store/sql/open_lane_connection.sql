-- Purpose: register this session as one that will hold lane locks, under a lock of its own that
-- shows whether it lives. Rows: one.
WITH begun AS (
    INSERT INTO lanekeeper.server_epoch DEFAULT VALUES ON CONFLICT DO NOTHING RETURNING epoch
), opened AS (
    INSERT INTO lanekeeper.lane_connection (worker_id, backend_pid, backend_start, epoch)
    SELECT $1, a.pid, a.backend_start,
           coalesce((SELECT b.epoch FROM begun AS b), (SELECT e.epoch FROM lanekeeper.server_epoch AS e))
    FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = pg_backend_pid()
    RETURNING connection_id
)
SELECT o.connection_id, pg_advisory_lock(lanekeeper.connection_lock(o.connection_id)) FROM opened AS o
