-- Purpose: subscriptions for people, by name. $2: those behind this name; $3: of these streams; NULL for all.
-- Index: subscription_by_name. Rows: at most $1.
SELECT s.subscription_id, s.name AS subscription, t.name AS stream, s.adapter, s.version, s.events, s.settings, s.paused_at, s.pause_reason
FROM lanekeeper.subscription AS s
JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
WHERE s.removed_at IS NULL
  AND ($2::text IS NULL OR s.name > $2) AND ($3::int[] IS NULL OR s.stream_id = ANY ($3))
ORDER BY s.name LIMIT $1
