-- Purpose: who holds or awaits advisory locks of Lanekeeper's kind and has no business with them. Rows: at most $1, those that
-- block others first.
SELECT f.backend_pid, f.role, f.application, f.held, f.awaited, f.blocks
FROM lanekeeper.foreign_lock AS f
ORDER BY f.blocks DESC, f.held DESC, f.backend_pid LIMIT $1
