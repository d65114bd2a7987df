-- Purpose: let the transaction of a projection settle this, on the connection that holds the lane. Keeps I5.
-- Index: none. Rows: one.
SELECT lanekeeper.projection_permit($1, $2, $3, $4, $5, $6, $7, $8)
