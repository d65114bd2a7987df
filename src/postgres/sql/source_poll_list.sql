-- Purpose: who asks each source with `poll`, and what is wrong, for `status`. Index: none. Rows: one per such source.
SELECT p.source_id, p.bot, p.worker_id, p.problem, p.moved_at,
       extract(epoch FROM clock_timestamp() - p.alive_at)::bigint AS silent_s
FROM lanekeeper.source_poll AS p
