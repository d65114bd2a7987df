-- For operators: each worker's newest heartbeat, with its connections and the lanes that it holds.
CREATE OR REPLACE VIEW lanekeeper.worker_status AS
SELECT DISTINCT ON (w.worker_id)
       w.worker_id, w.host, w.pid, w.release, w.state, w.started_at, w.beat_at,
       extract(epoch FROM clock_timestamp() - w.beat_at)::float8 AS silent_s,
       (SELECT count(*) FROM lanekeeper.lane_connection AS c WHERE c.worker_id = w.worker_id) AS lane_connections,
       (SELECT count(*) FROM lanekeeper.held_lane AS h WHERE h.worker_id = w.worker_id) AS held_lanes
FROM lanekeeper.worker AS w
ORDER BY w.worker_id, w.version DESC;
