-- Purpose: lanes that have something to do or wait for an operator, without a look at those at rest.
-- With $2, only those that are held up: parked, or in back-off. $1: subscriptions, NULL for all.
-- $4, $5: behind this row of an earlier answer, its `due_us` and `position`; NULL from the start.
-- Indexes: ready's primary key, scanned per route and priority; progress_parked.
-- Rows: at most $3, parked ones first, then by due time. A lane may have a spare ready entry, hence 2 * $3; its lane may
-- come once more on a later page.
WITH route AS MATERIALIZED (
    SELECT s.subscription_id, o.route, v.priority
    FROM lanekeeper.subscription AS s
    CROSS JOIN LATERAL (
        SELECT s.subscription_id AS route
        UNION ALL
        SELECT h.route FROM lanekeeper.host_route AS h WHERE h.subscription_id = s.subscription_id
    ) AS o
    CROSS JOIN lanekeeper.priority_level AS v
    WHERE s.removed_at IS NULL AND ($1::int[] IS NULL OR s.subscription_id = ANY ($1))
), found AS (
    (SELECT p.lane_id, '-infinity'::timestamptz AS due_at, p.lane_id AS position
     FROM lanekeeper.progress AS p JOIN lanekeeper.lane AS l ON l.lane_id = p.lane_id
     WHERE p.parked_at IS NOT NULL AND l.subscription_id IN (SELECT r.subscription_id FROM route AS r)
       AND ($4::bigint IS NULL OR $4 < 0 AND p.lane_id > $5::bigint)
     ORDER BY p.lane_id LIMIT $3)
    UNION ALL
    SELECT r.lane_id, r.due_at, r.id
    FROM route AS o
    CROSS JOIN LATERAL (
        SELECT r.lane_id, r.due_at, r.id
        FROM lanekeeper.ready AS r
        CROSS JOIN LATERAL (
            SELECT p.retry_at, p.parked_at FROM lanekeeper.progress AS p
            WHERE p.lane_id = r.lane_id ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE r.route = o.route AND r.priority = o.priority
          AND r.due_at >= CASE WHEN $2 THEN now() ELSE '-infinity' END
          AND r.due_at >= CASE WHEN $4 >= 0 THEN 'epoch'::timestamptz + $4 * interval '1 us' ELSE '-infinity' END
          AND ($4 IS NULL OR $4 < 0 OR r.due_at > 'epoch'::timestamptz + $4 * interval '1 us' OR r.id > $5)
          AND p.parked_at IS NULL AND (NOT $2 OR p.retry_at > now())
        ORDER BY r.due_at, r.id LIMIT 2 * $3
    ) AS r
)
SELECT f.lane_id, f.position,
       CASE WHEN f.due_at = '-infinity' THEN -1 ELSE (extract(epoch FROM f.due_at) * 1000000)::bigint END AS due_us
FROM (SELECT DISTINCT ON (f.lane_id) f.lane_id, f.due_at, f.position FROM found AS f ORDER BY f.lane_id, f.due_at, f.position) AS f
ORDER BY f.due_at, f.position LIMIT $3
