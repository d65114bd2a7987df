-- Purpose: of each subscription that is not paused, the lane that has had work for the longest time without any progress, if
-- that is longer than $1 ms, and, where a worker has it, than the time-out of its deliveries beside (F6).
-- held: a worker has it, and its claim is that old. due: its ready entry has been due that long, and no worker took it.
-- Claims are old where something is wrong, so nothing is read of the others. The oldest entries of a subscription are read,
-- 20 at the most of each priority; $2, $3: routes, and low-water marks below which none is.
-- Index: ready's, lane's and progress' primary keys. Rows: at most two for each subscription, $4 in all.
WITH old AS MATERIALIZED (
    SELECT m.connection_id, m.lane_ids, m.claimed_at FROM lanekeeper.claim AS m
    WHERE m.claimed_at < clock_timestamp() - $1 * interval '1 ms'
), held AS MATERIALIZED (
    SELECT l.subscription_id, l.lane_id, l.session_id, h.worker_id, greatest(o.claimed_at, p.changed_at) AS since
    FROM old AS o
    JOIN lanekeeper.held_lane AS h ON h.connection_id = o.connection_id AND h.lane_id = ANY (o.lane_ids)
    JOIN lanekeeper.lane AS l ON l.lane_id = h.lane_id
    CROSS JOIN LATERAL (
        SELECT p.changed_at FROM lanekeeper.progress AS p WHERE p.lane_id = h.lane_id ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE EXISTS (SELECT FROM old)
)
SELECT s.subscription_id, s.name AS subscription, x.state, n.name AS session, x.worker_id,
       extract(epoch FROM clock_timestamp() - x.since)::float8 AS stalled_s
FROM lanekeeper.subscription AS s
CROSS JOIN LATERAL (
    (SELECT 'held' AS state, h.session_id, h.worker_id, h.since
     FROM held AS h
     WHERE h.subscription_id = s.subscription_id
       AND h.since < clock_timestamp() - ($1 + coalesce((s.settings ->> 'timeout_ms')::bigint, 0)) * interval '1 ms'
     ORDER BY h.since LIMIT 1)
    UNION ALL
    (SELECT 'due', l.session_id, NULL, greatest(d.due_at, p.changed_at)
     FROM lanekeeper.priority_level AS v
     CROSS JOIN LATERAL (
         SELECT s.subscription_id AS route
         UNION ALL
         SELECT h.route FROM lanekeeper.host_route AS h WHERE h.subscription_id = s.subscription_id
     ) AS o
     CROSS JOIN LATERAL (
         SELECT r.lane_id, r.due_at FROM lanekeeper.ready AS r
         WHERE r.route = o.route AND r.priority = v.priority AND r.due_at < clock_timestamp() - $1 * interval '1 ms'
           AND r.due_at >= coalesce(
               (SELECT f.floor FROM unnest($2::int[], $3::timestamptz[]) AS f (route, floor) WHERE f.route = o.route), '-infinity')
         ORDER BY r.due_at LIMIT 20
     ) AS d
     JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
     CROSS JOIN LATERAL (
         SELECT p.changed_at, p.parked_at FROM lanekeeper.progress AS p WHERE p.lane_id = d.lane_id ORDER BY p.version DESC LIMIT 1
     ) AS p
     WHERE p.parked_at IS NULL AND p.changed_at < clock_timestamp() - $1 * interval '1 ms'
       AND NOT EXISTS (SELECT FROM held AS h WHERE h.lane_id = d.lane_id)
     ORDER BY 4 LIMIT 1)
) AS x
JOIN lanekeeper.session AS n ON n.session_id = x.session_id
WHERE s.removed_at IS NULL AND s.paused_at IS NULL
ORDER BY s.name, x.state DESC LIMIT $4
