-- Purpose: tell the backends of connections that their own worker gave up to end. Keeps I13.
-- Waits for none: one whose process does not run would hold up the heartbeat of its living worker.
-- MATERIALIZED: a plan may else evaluate the function before the starts are compared, and end others.
-- Rows: one per backend given that is there.
WITH there AS MATERIALIZED (
    SELECT a.pid, a.backend_start
    FROM unnest($1::int[], $2::timestamptz[]) AS u (pid, backend_start)
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid = u.pid AND a.backend_start = u.backend_start
)
SELECT t.pid, t.backend_start FROM there AS t WHERE pg_terminate_backend(t.pid)
