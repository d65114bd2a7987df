-- Purpose: append one event; the message id that the producer chose makes it repeatable.
-- Rows: one.
SELECT e.seq, e.duplicate
FROM lanekeeper.enqueue($1, $2, $3, $4::jsonb, $5, NULL, 0::smallint, $6::jsonb) AS e
