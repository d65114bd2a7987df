-- Purpose: the newest seq of a session, 0 where it has none. Rows: one.
SELECT n.seq FROM lanekeeper.newest_event($1, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n
