-- Purpose: who a projection's connection is, and whether it could act as Lanekeeper does.
-- Index: none. Rows: one.
SELECT session_user::text AS role, a.pid, a.backend_start,
       r.rolsuper OR r.rolcreaterole OR pg_has_role(r.oid, n.nspowner, 'MEMBER')
           OR has_table_privilege(r.oid, 'lanekeeper.lock_secret', 'SELECT')
           OR has_table_privilege(r.oid, 'lanekeeper.progress', 'INSERT, UPDATE, DELETE') AS is_mighty
FROM pg_catalog.pg_stat_activity AS a
CROSS JOIN pg_catalog.pg_namespace AS n
JOIN pg_catalog.pg_roles AS r ON r.rolname = session_user
WHERE a.pid = pg_backend_pid() AND n.nspname = 'lanekeeper'
