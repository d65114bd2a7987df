-- Purpose: pause a subscription until somebody resumes it, and tell the workers. Rows: one.
-- Index: subscription_by_name.
WITH paused AS (
    UPDATE lanekeeper.subscription AS s SET paused_at = now(), pause_reason = $2
    WHERE s.name = $1 AND s.removed_at IS NULL AND s.paused_at IS NULL
    RETURNING s.subscription_id
)
SELECT pg_notify('lanekeeper', '') FROM paused
