-- Purpose: what shows that a session is the server's own, and which of its processes serves it.
-- Index: none. Rows: one.
SELECT current_setting('lanekeeper.session', true), a.pid, a.backend_start
FROM pg_catalog.pg_stat_activity AS a
WHERE a.pid = pg_backend_pid()
