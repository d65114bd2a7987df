-- Purpose: the sources that workers ask, whether nobody holds each one, and the connection of a holder that gave no sign of
-- life for $1 ms (I6: by Postgres' clock). The lock is let go with the statement. Index: the key of source_poll. Rows: one
-- per source with `poll`.
SELECT s.source_id, s.name, s.version, s.definition,
       pg_try_advisory_xact_lock(lanekeeper.source_lock(s.source_id)) AS free,
       CASE WHEN p.alive_at < clock_timestamp() - $1::bigint * interval '1 ms' THEN p.backend_pid END AS silent_pid,
       p.backend_start AS silent_start
FROM (
    SELECT s.source_id, s.name, s.version, s.definition FROM lanekeeper.source AS s WHERE s.definition ? 'poll' OFFSET 0
) AS s
LEFT JOIN lanekeeper.source_poll AS p ON p.source_id = s.source_id
ORDER BY s.name
