-- Purpose: settle many lanes that this connection holds. Keeps I4, I5, I13.
-- Index: the primary keys of progress and event; ready entries by ctid. Rows: one.
SELECT ords, results
FROM lanekeeper.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                       $19, $20, $21, $22, $23, $24, $25, $26, $27)
