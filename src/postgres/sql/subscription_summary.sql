-- Purpose: subscriptions for people. Index: subscription_by_name. Rows: at most $1.
SELECT s.subscription_id, s.name AS subscription, t.name AS stream, s.adapter, s.version, s.events, s.settings, s.paused_at, s.pause_reason
FROM lanekeeper.subscription AS s
JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
WHERE s.removed_at IS NULL
ORDER BY s.name LIMIT $1
