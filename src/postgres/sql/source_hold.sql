-- Purpose: become the one worker that asks a source, on this connection for as long as it lives. Rows: one.
SELECT pg_try_advisory_lock(lanekeeper.source_lock($1::bigint))
