-- Purpose: a ready entry for every lane of a subscription whose filter changed or that was away, since
-- events may now be waiting behind its cursor for which no append left an entry (I13). A spare one
-- is harmless. Its lanes are no longer plain: an append asks the filter from now on.
-- Index: lane_by_subscription, progress' primary key. Rows: one per lane.
WITH filtered AS (
    UPDATE lanekeeper.lane AS l SET plain = false WHERE l.subscription_id = $1 AND l.plain
)
INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
SELECT lanekeeper.entry_route(l.lane_id, l.route), 0, greatest(p.retry_at, clock_timestamp()), l.lane_id
FROM lanekeeper.lane AS l
CROSS JOIN LATERAL (
    SELECT p.retry_at, p.parked_at FROM lanekeeper.progress AS p
    WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p
WHERE l.subscription_id = $1 AND p.parked_at IS NULL
