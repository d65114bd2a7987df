-- Purpose: the workers and their last signs of life. Rows: at most $1, the longest silent first.
SELECT w.worker_id, w.host, w.pid, w.release, w.state, w.started_at, w.beat_at, w.silent_s,
       w.lane_connections, w.held_lanes
FROM lanekeeper.worker_status AS w
ORDER BY w.silent_s DESC LIMIT $1
