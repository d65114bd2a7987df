-- Purpose: a sign of life of a source's holder, which is not worth a flush, and what is wrong with the source ($2, NULL:
-- nothing). Returns how far the source is, and whether that is still to be named to the platform: Telegram forgets updates
-- after a day, and may number them anew after a week without any. No row: the source is gone, or has another holder.
-- Index: the key of source_poll. Rows: one.
UPDATE lanekeeper.source_poll AS p SET alive_at = clock_timestamp(), problem = left($2, 500)
WHERE p.source_id = $1 AND p.backend_pid = pg_backend_pid() AND set_config('synchronous_commit', 'off', true) = 'off'
RETURNING p.next_update, coalesce(p.moved_at > clock_timestamp() - interval '2 days', false) AS is_fresh
