-- Purpose: forget messages that were acknowledged more than a day ago. Index: sent_by_age. Rows: at most $1.
SELECT lanekeeper.forget_acked($1) AS forgotten
