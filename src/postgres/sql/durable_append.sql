-- Purpose: append what a request of the Durable Streams protocol sent, or close its stream, or both. Keeps I1, I13. Rows: one.
SELECT d.outcome, d.newest, d.closed, d.epoch, d.seq
FROM lanekeeper.append_durable($1, $2, $3, $4::jsonb, $5, $6, $7, $8, $9) AS d
