-- Purpose: every subscription with what its stream adds, removed ones included. Rows: all, some
-- tens, the oldest first.
SELECT s.subscription_id, s.stream_id, t.name AS stream, s.name, s.version, s.adapter, s.events,
       t.critical, s.settings, s.retry_schedule_ms, s.max_attempts, s.on_exhausted, s.coalesce,
       s.concurrency, s.history, s.start_from, s.ack, s.ack_timeout_ms, s.ack_window,
       s.max_pending, s.on_full, s.max_age_ms, s.lifecycle, s.host_bound,
       s.paused_at IS NOT NULL AS paused, s.removed_at IS NOT NULL AS removed,
       t.poll_floor_ms
FROM lanekeeper.subscription AS s
JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
ORDER BY s.subscription_id
