-- Purpose: the stream of a subscription. Index: subscription_by_name. Rows: at most one.
SELECT t.name FROM lanekeeper.subscription AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
WHERE s.name = $1 AND s.removed_at IS NULL
