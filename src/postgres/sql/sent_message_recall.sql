-- Purpose: what was sent of one message, part by part.
-- Indexes: subscription_by_name, stream's and session's unique names, sent_message's primary key. Rows: the
-- parts of one message, which adapters bound.
SELECT m.part, m.reference
FROM lanekeeper.subscription AS s
JOIN lanekeeper.session AS n ON n.stream_id = s.stream_id AND n.name = $2
JOIN lanekeeper.sent_message AS m
    ON m.subscription_id = s.subscription_id AND m.session_id = n.session_id AND m.chat = $3 AND m.key = $4
WHERE s.name = $1 AND s.removed_at IS NULL
ORDER BY m.part
