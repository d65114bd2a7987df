-- Purpose: what a mistyped name may have meant. Index: subscription_by_name. Rows: at most 1000.
SELECT s.name FROM lanekeeper.subscription AS s WHERE s.removed_at IS NULL ORDER BY s.name LIMIT 1000
