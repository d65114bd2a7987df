-- Purpose: keep a folded state. Index: see the function. Rows: one.
SELECT lanekeeper.take_snapshot($1, $2, $3, $4, $5, $6) AS taken
