-- Purpose: lanes that have something to do or wait for an operator, without a look at those at rest.
-- With $2, only those that are held up: parked, or in back-off. $1: one subscription, NULL for all.
-- Indexes: ready's primary key, scanned per route and priority; progress_parked.
-- Rows: at most $3, parked ones first, then by due time. A lane may have a spare ready entry, hence 2 * $3.
WITH route AS MATERIALIZED (
    SELECT s.subscription_id, o.route, v.priority
    FROM lanekeeper.subscription AS s
    CROSS JOIN LATERAL (
        SELECT s.subscription_id AS route
        UNION ALL
        SELECT h.route FROM lanekeeper.host_route AS h WHERE h.subscription_id = s.subscription_id
    ) AS o
    CROSS JOIN lanekeeper.priority_level AS v
    WHERE s.removed_at IS NULL AND ($1::int IS NULL OR s.subscription_id = $1)
), found AS (
    (SELECT p.lane_id, '-infinity'::timestamptz AS due_at
     FROM lanekeeper.progress AS p JOIN lanekeeper.lane AS l ON l.lane_id = p.lane_id
     WHERE p.parked_at IS NOT NULL AND l.subscription_id IN (SELECT r.subscription_id FROM route AS r)
     LIMIT $3)
    UNION ALL
    SELECT r.lane_id, r.due_at
    FROM route AS o
    CROSS JOIN LATERAL (
        SELECT r.lane_id, r.due_at
        FROM lanekeeper.ready AS r
        CROSS JOIN LATERAL (
            SELECT p.retry_at, p.parked_at FROM lanekeeper.progress AS p
            WHERE p.lane_id = r.lane_id ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE r.route = o.route AND r.priority = o.priority
          AND r.due_at >= CASE WHEN $2 THEN now() ELSE '-infinity' END
          AND p.parked_at IS NULL AND (NOT $2 OR p.retry_at > now())
        ORDER BY r.due_at, r.id LIMIT 2 * $3
    ) AS r
)
SELECT f.lane_id FROM found AS f GROUP BY f.lane_id ORDER BY min(f.due_at), f.lane_id LIMIT $3
