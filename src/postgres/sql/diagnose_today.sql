-- Purpose: whether today's partition of the log is there. Rows: one.
SELECT to_regclass('lanekeeper.event_' || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL AS today
