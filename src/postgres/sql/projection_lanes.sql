-- Purpose: how far the lanes of a projection are, for its rebuild. Index: lane_by_subscription, progress' primary key,
-- session's primary key. Rows: at most $3.
SELECT l.lane_id, l.session_id, s.name AS session, p.cursor
FROM lanekeeper.lane AS l
JOIN lanekeeper.session AS s ON s.session_id = l.session_id
CROSS JOIN LATERAL (
    SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p
WHERE l.subscription_id = $1 AND l.lane_id > $2
ORDER BY l.lane_id LIMIT $3
