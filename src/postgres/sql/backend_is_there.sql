-- Purpose: whether the server still has a connection whose client hears nothing of it. Rows: one.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = $1::int AND a.backend_start = $2::timestamptz)
