-- Purpose: let go of the bot that a source asked for before, where it has another one now: otherwise two sources that exchange
-- their bots wait for each other. Its updates are counted anew. Index: the key of source_poll. Rows: one.
UPDATE lanekeeper.source_poll AS p SET bot = NULL, next_update = NULL, moved_at = NULL, resume = NULL
WHERE p.source_id = $1 AND p.backend_pid = pg_backend_pid() AND p.bot <> $2
