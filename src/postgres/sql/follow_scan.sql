-- Purpose: the sessions after session $2 with events of day $3 or later, as log_follow.sql; of those that belong to stream $1
-- the newest seq, and the first one that a cursor lacks which has everything of transactions below $5 (follow_since.sql).
-- `next_xact` is above the number of every transaction whose events are seen here.
-- Index: event's primary key, one descent for each session and partition from day $3 on, and those events. Rows: at most $4.
WITH RECURSIVE visited AS (
    (SELECT e.session_id FROM lanekeeper.event AS e
     WHERE e.session_id > $2 AND e.day >= $3 ORDER BY e.session_id LIMIT 1)
    UNION ALL
    SELECT e.session_id
    FROM visited AS v
    CROSS JOIN LATERAL (
        SELECT e.session_id FROM lanekeeper.event AS e
        WHERE e.session_id > v.session_id AND e.day >= $3 ORDER BY e.session_id LIMIT 1
    ) AS e
)
SELECT v.session_id, e.seq AS newest, coalesce(o.seq, 0) + 1 AS first,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xact
FROM (SELECT v.session_id FROM visited AS v LIMIT $4) AS v
LEFT JOIN LATERAL (
    SELECT s.stream_id = $1 AS is_of_stream FROM lanekeeper.session AS s WHERE s.session_id = v.session_id LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE s.is_of_stream AND e.session_id = v.session_id AND e.day >= $3 ORDER BY e.seq DESC LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT o.seq FROM lanekeeper.event AS o
    WHERE s.is_of_stream AND o.session_id = v.session_id
      AND lanekeeper.xact_number(o.xmin, pg_snapshot_xmax(pg_current_snapshot())::text::bigint) < $5
    ORDER BY o.seq DESC LIMIT 1
) AS o ON true
ORDER BY v.session_id
