-- Purpose: sessions, the newest first, with how far they got. $1: one stream, $2: one session; NULL
-- for all. Index: session's primary key, walked backwards; where a stream has few of the newest
-- sessions, the walk passes those of the others. Rows: at most $3.
SELECT t.name AS stream, n.name AS session, n.created_at, coalesce(e.seq, x.seq, 0) AS newest_seq,
       e.created_at AS last_event_at, l.lanes, l.parked,
       coalesce(coalesce(e.seq, x.seq, 0) - l.cursor, 0) AS behind
FROM (
    SELECT n.session_id, n.stream_id, n.name, n.created_at FROM lanekeeper.session AS n
    WHERE ($1::int IS NULL OR n.stream_id = $1) AND ($2::bigint IS NULL OR n.session_id = $2)
    ORDER BY n.session_id DESC LIMIT $3
) AS n
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
LEFT JOIN LATERAL (
    SELECT e.seq, e.created_at FROM lanekeeper.event AS e
    WHERE e.session_id = n.session_id ORDER BY e.seq DESC LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT x.seq FROM lanekeeper.session_tail AS x
    WHERE x.session_id = n.session_id ORDER BY x.seq DESC LIMIT 1
) AS x ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes, count(p.parked_at) AS parked, min(p.cursor) AS cursor
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
    CROSS JOIN LATERAL (
        SELECT p.cursor, p.parked_at FROM lanekeeper.progress AS p
        WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE l.session_id = n.session_id
) AS l
ORDER BY n.session_id DESC
