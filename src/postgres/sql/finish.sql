-- Purpose: settle lanes that this connection holds, all of which finish. Keeps I4, I5, I13.
-- Index: event's primary key; progress and ready entries by ctid. Rows: one.
SELECT ords, results FROM lanekeeper.finish($1, $2, $3, $4, $5, $6, $7, $8, $9)
