-- Purpose: the lanes of one session, those of removed subscriptions left out.
-- Index: lane's unique (session_id, subscription_id). Rows: one per subscription of the stream.
SELECT l.lane_id
FROM lanekeeper.lane AS l
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
WHERE l.session_id = $1 AND s.removed_at IS NULL AND ($2::int IS NULL OR l.subscription_id = $2)
ORDER BY s.name
