-- Purpose: a worker that ended cleanly takes its row and its reports with it. Rows: one, and one per subscription.
-- Index: the primary keys.
WITH reports AS (
    DELETE FROM lanekeeper.subscription_report AS r WHERE r.worker_id = $1
)
DELETE FROM lanekeeper.worker AS w WHERE w.worker_id = $1
