-- Purpose: set a subscription to what the file says, and bring it back where it was removed.
-- Rows: one. Index: subscription's primary key.
UPDATE lanekeeper.subscription AS s
SET adapter = $2, events = $3, start_from = $4, settings = $5, retry_schedule_ms = $6,
    max_attempts = $7, on_exhausted = $8, coalesce = $9, concurrency = $10, history = $11,
    ack = $12, ack_timeout_ms = $13, ack_window = $14,
    max_pending = $15, on_full = $16, max_age_ms = $17, lifecycle = $18,
    removed_at = NULL, version = s.version + 1
WHERE s.subscription_id = $1
RETURNING s.subscription_id, s.version
