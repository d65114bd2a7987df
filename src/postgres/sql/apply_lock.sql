-- Purpose: one `apply` at a time; released with the transaction. Rows: one.
SELECT pg_advisory_xact_lock(lanekeeper.apply_lock())
