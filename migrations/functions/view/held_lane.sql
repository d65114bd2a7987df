-- For operators: which backend and worker holds a lane's lock right now. Of the lanes that a connection claimed, those whose
-- key it has locked: no lane follows from a key. A lock's key is split over classid and objid. IS TRUE keeps the locks in a
-- hash table, whatever the planner may not do: they are read once.
CREATE OR REPLACE VIEW lanekeeper.held_lane AS
SELECT DISTINCT u.lane_id, c.backend_pid, c.worker_id, c.connection_id
FROM lanekeeper.lane_connection AS c
JOIN lanekeeper.claim AS m ON m.connection_id = c.connection_id
CROSS JOIN LATERAL unnest(m.lane_ids) AS u (lane_id)
WHERE ((c.backend_pid, lanekeeper.lane_lock(u.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) IN (
    SELECT k.pid, (k.classid::bigint << 32) | k.objid::bigint
    FROM pg_catalog.pg_locks AS k
    WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
      AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()))) IS TRUE;
