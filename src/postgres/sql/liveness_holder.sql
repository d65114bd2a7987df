-- Purpose: who has a worker's liveness lock. Rows: one at most.
SELECT k.pid, a.usename::text AS role, a.application_name AS application
FROM pg_catalog.pg_locks AS k LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = k.pid
WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
  AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND ((k.classid::bigint << 32) | k.objid::bigint) = lanekeeper.worker_lock($1::bigint)
