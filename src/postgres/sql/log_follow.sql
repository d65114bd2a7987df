-- Purpose: the sessions after session $2 that have events of day $3 or later, with the newest seq of those that
-- belong to stream $1; the others come without a name, so that the caller knows where to go on.
-- Index: event's primary key, one descent for each session and partition from day $3 on; earlier partitions are
-- pruned. Rows: at most $4.
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
SELECT v.session_id, s.name, e.seq
FROM (SELECT v.session_id FROM visited AS v LIMIT $4) AS v
-- By the session's key alone, which the planner could leave for the stream's sessions where its counts are old.
LEFT JOIN LATERAL (
    SELECT CASE WHEN s.stream_id = $1 THEN s.name END AS name
    FROM lanekeeper.session AS s WHERE s.session_id = v.session_id LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE s.name IS NOT NULL AND e.session_id = v.session_id AND e.day >= $3 ORDER BY e.seq DESC LIMIT 1
) AS e ON true
ORDER BY v.session_id
