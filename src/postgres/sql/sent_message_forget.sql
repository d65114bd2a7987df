-- Purpose: a message is gone from the platform. Index: sent_message's primary key. Rows: at most one.
DELETE FROM lanekeeper.sent_message AS m
USING lanekeeper.subscription AS s
JOIN lanekeeper.session AS n ON n.stream_id = s.stream_id AND n.name = $2
WHERE s.name = $1 AND s.removed_at IS NULL
  AND m.subscription_id = s.subscription_id AND m.session_id = n.session_id
  AND m.chat = $3 AND m.key = $4 AND m.part = $5
