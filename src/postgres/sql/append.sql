-- Purpose: append one event. Keeps I1, I13. Rows: one.
SELECT e.message_id, e.seq, e.duplicate
FROM lanekeeper.enqueue($1, $2, $3, $4::jsonb, $5, $6, $7, $8::jsonb) AS e
