-- Purpose: forget records that are older than $1, $2, $3 and $4 days. Rows: at most $5 of each kind.
SELECT f.outcomes, f.histories, f.dead_letters, f.operations FROM lanekeeper.forget_records($1, $2, $3, $4, $5) AS f
