-- Purpose: let one process at a time rebuild a projection. Index: none. Rows: one.
SELECT pg_try_advisory_lock(lanekeeper.projection_lock(-$1::bigint))
