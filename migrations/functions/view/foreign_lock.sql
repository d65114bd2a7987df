-- For operators: who holds or awaits advisory locks of Lanekeeper's kind and has no business with them. pg_locks shows the
-- keys that are held to everybody, so somebody can wait for one and keep it: a lane then stands still, or an append waits.
--
-- Workers and operators are members of the role that owns the schema. A producer's role holds append locks, the doorbell in
-- shared mode, and the lock of a partition that it creates: in a transaction that has read `stream`, as every append does.
-- `blocks`: others wait for one of its locks.
CREATE OR REPLACE VIEW lanekeeper.foreign_lock AS
SELECT k.pid AS backend_pid, a.usename::text AS role, a.application_name AS application,
       count(*) FILTER (WHERE k.granted) AS held, count(*) FILTER (WHERE NOT k.granted) AS awaited,
       coalesce(bool_or(k.granted AND ((k.classid::bigint << 32) | k.objid::bigint) IN (
           SELECT (w.classid::bigint << 32) | w.objid::bigint FROM pg_catalog.pg_locks AS w
           WHERE w.locktype = 'advisory' AND w.objsubid = 1 AND NOT w.granted AND w.database = (
               SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()))), false) AS blocks
FROM pg_catalog.pg_locks AS k
CROSS JOIN LATERAL (SELECT (k.classid::bigint >> 8) & 255 AS kind) AS t
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = k.pid
WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.database = (
      SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND k.classid::bigint >> 16 = 19531
  AND NOT pg_has_role(a.usesysid, (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'lanekeeper'), 'MEMBER')
  AND NOT (
      (t.kind IN (1, 6) OR t.kind = 4 AND k.mode = 'ShareLock')
      AND k.pid IN (
          SELECT r.pid FROM pg_catalog.pg_locks AS r
          WHERE r.locktype = 'relation' AND r.relation = 'lanekeeper.stream'::regclass))
GROUP BY k.pid, a.usename, a.application_name;
