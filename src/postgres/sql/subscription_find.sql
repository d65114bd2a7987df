-- Purpose: a subscription by its name. Index: subscription_by_name. Rows: at most one.
SELECT s.subscription_id FROM lanekeeper.subscription AS s WHERE s.name = $1 AND s.removed_at IS NULL
