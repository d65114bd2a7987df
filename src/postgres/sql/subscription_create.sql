-- Purpose: a new subscription, at version 1. Rows: one.
INSERT INTO lanekeeper.subscription
    (stream_id, name, adapter, events, start_from, settings, retry_schedule_ms, max_attempts,
     on_exhausted, coalesce, concurrency, history, ack, ack_timeout_ms, ack_window,
     max_pending, on_full, max_age_ms, lifecycle, host_bound)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20)
RETURNING subscription_id, version
