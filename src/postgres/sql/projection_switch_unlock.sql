-- Purpose: feed a projection again. Index: none. Rows: one.
SELECT pg_advisory_unlock(lanekeeper.projection_lock($1::bigint))
