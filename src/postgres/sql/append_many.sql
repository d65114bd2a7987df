-- Purpose: append the events of one array, in its order, all or none. Keeps I1, I13.
-- Rows: one per event; the caller limits them.
SELECT e.message_id, e.seq, e.duplicate
FROM lanekeeper.enqueue_many($1, $2::jsonb) AS e
