-- Purpose: a session's events from seq $2 on, in order, none of them before day $3.
-- Index: event's primary key; earlier partitions are pruned. Rows: at most $4, and no more than the
-- first whose payloads reach $5 bytes together.
SELECT e.seq, e.day, e.message_id, e.event_type, e.priority, e.created_at, e.payload::json AS payload, e.headers
FROM (
    SELECT e.*, sum(e.size) OVER (ORDER BY e.seq) - e.size AS bytes_before
    FROM (
        SELECT e.seq, e.day, e.message_id, e.event_type, e.priority, e.created_at, e.size, e.payload, e.headers
        FROM lanekeeper.event AS e
        WHERE e.session_id = $1 AND e.seq >= $2 AND e.day >= $3
        ORDER BY e.seq LIMIT $4
    ) AS e
) AS e
WHERE e.bytes_before < $5
ORDER BY e.seq
