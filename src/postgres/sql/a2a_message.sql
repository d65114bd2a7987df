-- Purpose: a message that a subscription sent and that waits for its acknowledgement, with what it is called at its
-- destination: $3 and $4 are the place and the key of that, and a session has $5 of them.
-- Indexes: sent's, lane's, subscription's and session's primary keys, sent_message's primary key. Rows: at most one.
SELECT n.name AS session, w.seq, m.reference
FROM lanekeeper.sent AS w
JOIN lanekeeper.lane AS l ON l.lane_id = w.lane_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.name = $2 AND s.removed_at IS NULL
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
LEFT JOIN lanekeeper.sent_message AS m
    ON m.subscription_id = s.subscription_id AND m.session_id = n.session_id AND m.chat = $3 AND m.key = $4
   AND m.part = (w.seq % $5)::int
WHERE w.message_id = $1
