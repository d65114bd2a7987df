-- Purpose: of these subscriptions, those that a session of their stream has no lane of: new ones, and
-- such as an interrupted `apply` left so. Sessions at rest (-2) have no event that a lane would be for.
-- Rows: at most one for each given. Index: lane's unique (session_id, subscription_id); each session of
-- the stream is looked at where none is missing.
SELECT b.subscription_id, b.name
FROM lanekeeper.subscription AS b
WHERE b.name = ANY ($1) AND b.removed_at IS NULL AND b.start_from = 'earliest' AND EXISTS (
    SELECT FROM lanekeeper.session AS s
    WHERE s.stream_id = b.stream_id AND s.lanes_version <> -2 AND NOT EXISTS (
        SELECT FROM lanekeeper.lane AS l
        WHERE l.session_id = s.session_id AND l.subscription_id = b.subscription_id))
ORDER BY b.subscription_id
