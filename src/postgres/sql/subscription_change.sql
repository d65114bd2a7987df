-- Purpose: set a subscription to what the file says, and bring it back where it was removed.
-- Whoever feeds a projection is not replayed: such a replay ends with this (start_replay refuses another).
-- Rows: one, and its replays. Index: subscription's primary key, replay_unfinished.
WITH ended AS (
    UPDATE lanekeeper.replay AS y SET ending = 'removed', end_reason = 'the subscription is a projection now'
    WHERE $2 = 'projection' AND y.subscription_id = $1 AND y.ended_at IS NULL AND y.ending IS NULL
)
UPDATE lanekeeper.subscription AS s
SET adapter = $2, events = $3, start_from = $4, settings = $5, retry_schedule_ms = $6,
    max_attempts = $7, on_exhausted = $8, coalesce = $9, concurrency = $10, history = $11,
    ack = $12, ack_timeout_ms = $13, ack_window = $14,
    max_pending = $15, on_full = $16, max_age_ms = $17, lifecycle = $18,
    removed_at = NULL, version = s.version + 1
WHERE s.subscription_id = $1
RETURNING s.subscription_id, s.version
