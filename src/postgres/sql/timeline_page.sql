-- Purpose: a page of a session's log for people: the newest events before seq $2, without their payloads.
-- Index: event's primary key, read backwards. Rows: at most $3.
SELECT e.seq, e.message_id, e.event_type, e.priority, e.created_at, e.size, left(e.headers ->> 'traceparent', 100) AS traceparent
FROM lanekeeper.event AS e
WHERE e.session_id = $1 AND e.seq < $2
ORDER BY e.seq DESC LIMIT $3
