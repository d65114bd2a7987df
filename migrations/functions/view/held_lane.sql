-- For operators: which backend and worker holds a lane's lock right now. A lock's key is split over classid and objid.
CREATE OR REPLACE VIEW lanekeeper.held_lane AS
SELECT ((k.classid::bigint << 32) | k.objid::bigint) - lanekeeper.lane_lock(0) AS lane_id,
       k.pid AS backend_pid, c.worker_id, c.connection_id
FROM pg_catalog.pg_locks AS k
JOIN lanekeeper.lane_connection AS c ON c.backend_pid = k.pid
WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
  AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND k.classid::bigint >> 8 = lanekeeper.lane_lock(0) >> 40;
