-- Purpose: settle a lane in the transaction of a projection. Keeps I4, I5. Index: progress' primary key. Rows: one.
SELECT lanekeeper.settle_projection($1, $2, $3, $4, $5, $6, $7, $8, $9)
