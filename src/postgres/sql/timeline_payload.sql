-- Purpose: the beginning of one event's payload and headers, however large it is. Index: event's primary key. Rows: one.
SELECT e.event_type, e.message_id, e.created_at, e.size, left(e.payload, $3) AS payload, left(e.headers::text, $3) AS headers
FROM lanekeeper.event AS e
WHERE e.session_id = $1 AND e.seq = $2
