-- Purpose: whether today's and tomorrow's partitions of the log are there. Rows: one.
SELECT to_regclass('lanekeeper.event_' || to_char(d.today, 'YYYYMMDD')) IS NOT NULL AS today,
       to_regclass('lanekeeper.event_' || to_char(d.today + 1, 'YYYYMMDD')) IS NOT NULL AS tomorrow
FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today) AS d
