-- Purpose: every stream. Rows: all, a handful.
SELECT s.stream_id, s.name, s.max_payload_bytes, s.fan_out, s.critical,
       s.retry_schedule_ms, s.max_attempts, s.on_exhausted, s.max_pending, s.on_full, s.acknowledge,
       s.keep_events, s.terminal, s.a2a, s.timeout_ms, s.batch, s.poll_floor_ms
FROM lanekeeper.stream AS s
ORDER BY s.name
