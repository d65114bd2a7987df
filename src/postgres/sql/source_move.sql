-- Purpose: move how far a source is, in the transaction that enqueues the update before. A compare-and-set ($4 is what it
-- was): no row where another holder has moved it. Index: the key of source_poll. Rows: one.
UPDATE lanekeeper.source_poll AS p
SET next_update = $3::bigint, moved_at = clock_timestamp(), alive_at = clock_timestamp(), problem = NULL
WHERE p.source_id = $1 AND p.bot = $2 AND p.backend_pid = pg_backend_pid()
  AND p.next_update IS NOT DISTINCT FROM $4::bigint
