-- Purpose: what every subscription in force made of the message that a task stands for; a row with the state `unsubscribed`
-- where there is none. Indexes: stream's and session's unique names, event's primary key, then those of the view. Rows: one
-- for each subscription of the stream.
SELECT m.state, m.created_at, m.settled_at, lanekeeper.is_cancelled(m.headers) AS is_cancelled,
       m.created_at < clock_timestamp() - interval '1 day' AS is_past_answers
FROM lanekeeper.message AS m
LEFT JOIN lanekeeper.lane AS l ON l.lane_id = m.lane_id
LEFT JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
WHERE m.stream = $1 AND m.session = $2 AND m.seq = $3 AND s.removed_at IS NULL
