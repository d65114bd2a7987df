-- Purpose: keep how the session of Discord's gateway is resumed ($2 its id, $3 its address), behind which dispatch ($4);
-- NULL: nothing is, and dispatches are counted anew. No row: the source has another holder. Index: the key of source_poll.
-- Rows: one.
UPDATE lanekeeper.source_poll AS p
SET resume = CASE WHEN $2::text IS NOT NULL THEN jsonb_build_object('session_id', $2::text, 'address', $3::text) END,
    next_update = $4::bigint + 1, moved_at = CASE WHEN $4::bigint IS NOT NULL THEN clock_timestamp() END
WHERE p.source_id = $1 AND p.backend_pid = pg_backend_pid()
