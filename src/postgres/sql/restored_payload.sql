-- Purpose: one payload of a restored day that was too large to be read with its replay. Index: restored_event's primary key.
-- Rows: one.
SELECT e.payload FROM lanekeeper.restored_event AS e WHERE e.session_id = $1 AND e.seq = $2 AND e.day = $3
