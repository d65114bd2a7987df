-- Purpose: create a stream or set it to what the file says. Rows: one. Index: stream's unique name.
INSERT INTO lanekeeper.stream AS s
    (name, max_payload_bytes, fan_out, critical, retry_schedule_ms, max_attempts, on_exhausted, max_pending,
     on_full, acknowledge, keep_events, terminal, bounded, a2a, judged, timeout_ms, batch, poll_floor_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text[], $12::text[] IS NOT NULL OR $14::text[] IS NOT NULL, $13,
        $14::text[], $15, $16, $17)
ON CONFLICT (name) DO UPDATE SET
    max_payload_bytes = excluded.max_payload_bytes, fan_out = excluded.fan_out,
    critical = excluded.critical, retry_schedule_ms = excluded.retry_schedule_ms,
    max_attempts = excluded.max_attempts, on_exhausted = excluded.on_exhausted,
    max_pending = excluded.max_pending, on_full = excluded.on_full, acknowledge = excluded.acknowledge,
    keep_events = excluded.keep_events, terminal = excluded.terminal, bounded = s.bounded OR excluded.bounded,
    a2a = excluded.a2a, judged = excluded.judged, timeout_ms = excluded.timeout_ms, batch = excluded.batch,
    poll_floor_ms = excluded.poll_floor_ms
RETURNING s.stream_id
