-- Purpose: what became of the events from seq $3 to $4 of a session at each of the lanes $5.
-- Indexes: event's primary key, then those of the view. Rows: one for each of the events and lanes, both of which are few.
SELECT m.seq, m.lane_id, m.state, m.attempts, left(m.error, 2000) AS error, m.replaced_by, m.settled_at
FROM lanekeeper.message AS m
WHERE m.stream = $1 AND m.session = $2 AND m.seq BETWEEN $3 AND $4 AND m.lane_id = ANY ($5)
ORDER BY m.seq
