-- Purpose: one payload that was too large to be fetched with its batch.
-- Index: event's primary key. Rows: one.
SELECT e.payload
FROM lanekeeper.event AS e
WHERE e.session_id = $1 AND e.seq = $2 AND e.day = $3
