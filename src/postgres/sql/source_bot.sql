-- Purpose: enter which bot a source asks for. Another bot than before counts its updates anew. SQLSTATE 23505 where another
-- source asks for this bot. Index: the keys of source_poll. Rows: one.
UPDATE lanekeeper.source_poll AS p
SET bot = $2, next_update = CASE WHEN p.bot = $2 THEN p.next_update END,
    moved_at = CASE WHEN p.bot = $2 THEN p.moved_at END,
    resume = CASE WHEN p.bot = $2 THEN p.resume END
WHERE p.source_id = $1 AND p.backend_pid = pg_backend_pid()
