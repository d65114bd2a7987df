-- Purpose: append one event that is to have seq $9. Keeps I1, I13. Rows: one.
SELECT e.message_id, e.seq, e.duplicate
FROM lanekeeper.enqueue_at($1, $2, $9, $3, $4::jsonb, $5, $6, $7, $8::jsonb) AS e
