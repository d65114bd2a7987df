-- Purpose: a projection by its name. Index: subscription_by_name. Rows: at most one.
SELECT s.subscription_id, s.settings, t.name AS stream
FROM lanekeeper.subscription AS s
JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
WHERE s.name = $1 AND s.removed_at IS NULL AND s.adapter = 'projection'
