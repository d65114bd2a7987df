-- Purpose: whether a session of the stream has no lane of the subscription yet: an `apply` that was
-- interrupted left it so. Index: lane's unique (session_id, subscription_id). Rows: one.
SELECT EXISTS (
    SELECT FROM lanekeeper.session AS s
    WHERE s.stream_id = b.stream_id AND NOT EXISTS (
        SELECT FROM lanekeeper.lane AS l
        WHERE l.session_id = s.session_id AND l.subscription_id = b.subscription_id)
) AS lacking
FROM lanekeeper.subscription AS b
WHERE b.subscription_id = $1
