-- Purpose: keep a projection from being fed while it is switched; waits for what is under way. Index: none. Rows: one.
SELECT pg_advisory_lock(lanekeeper.projection_lock($1::bigint))
