-- Purpose: forget records that are older than $1, $2 and $3 days. Rows: at most $4 of each kind.
SELECT f.outcomes, f.histories, f.dead_letters FROM lanekeeper.forget_records($1, $2, $3, $4) AS f
