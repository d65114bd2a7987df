-- Purpose: enters a message that was sent; one that was deleted at the platform is replaced by its successor.
-- Indexes: subscription_by_name, session's unique names, sent_message's primary key. Rows: one.
INSERT INTO lanekeeper.sent_message AS m (subscription_id, session_id, chat, key, part, reference)
SELECT s.subscription_id, n.session_id, $3, $4, $5, $6
FROM lanekeeper.subscription AS s
JOIN lanekeeper.session AS n ON n.stream_id = s.stream_id AND n.name = $2
WHERE s.name = $1 AND s.removed_at IS NULL
ON CONFLICT (subscription_id, session_id, chat, key, part)
DO UPDATE SET reference = excluded.reference, sent_at = excluded.sent_at
