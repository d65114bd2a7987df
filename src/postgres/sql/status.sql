-- Purpose: how each subscription stands, at a cost that does not depend on backlog or history.
-- Reads lanes with a ready entry, held or parked ones, at most $1 of each kind per subscription; all
-- others are dormant. `partial`: there are more than that. Indexes: ready's and event's primary keys (by functions:
-- a plan of this statement's own would have every partition), progress_parked,
-- lane_by_subscription, dead_unresolved. Rows: at most $2. Lanes are counted up to $3 per subscription, and dead letters
-- up to 10 * $1 of all subscriptions together: one without any must not read all those of another.
-- $4, $5: routes, and their low-water marks, below which no ready entry is: without them a scan would step over all dead
-- entries that a snapshot keeps. $6: these subscriptions; NULL for all.
WITH held AS MATERIALIZED (
    SELECT h.lane_id, l.subscription_id
    FROM lanekeeper.held_lane AS h JOIN lanekeeper.lane AS l ON l.lane_id = h.lane_id
), unresolved AS MATERIALIZED (
    SELECT d.lane_id, d.after_seq FROM lanekeeper.dead AS d WHERE d.resolution IS NULL ORDER BY d.dead_id LIMIT 10 * $1
), dead AS MATERIALIZED (
    SELECT l.subscription_id, count(*) AS dead_letters
    FROM unresolved AS d JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
    WHERE d.after_seq IS NULL GROUP BY l.subscription_id
)
SELECT s.subscription_id, s.name AS subscription, t.name AS stream, s.adapter, s.paused_at, s.pause_reason,
       n.lanes, a.ready, a.held, a.blocked, a.sent, a.parked, a.behind, a.deepest, a.oldest_age_s, d.dead_letters,
       c.sent AS messages_sent, c.acked, c.retried, c.failed, c.expired, c.dropped, s.max_pending,
       a.partial, d.dead_letters >= $1 OR (SELECT count(*) >= 10 * $1 FROM unresolved AS u) AS many_dead_letters, n.lanes >= $3 AS many_lanes
FROM lanekeeper.subscription AS s
JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes
    FROM (SELECT FROM lanekeeper.lane AS l WHERE l.subscription_id = s.subscription_id LIMIT $3) AS l
) AS n
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE c.state = 'ready') AS ready,
           count(*) FILTER (WHERE c.state = 'held') AS held,
           count(*) FILTER (WHERE c.state = 'blocked') AS blocked,
           count(*) FILTER (WHERE c.state = 'sent') AS sent,
           count(*) FILTER (WHERE c.state = 'parked') AS parked,
           coalesce(sum(c.behind), 0)::bigint AS behind, coalesce(max(c.behind), 0)::bigint AS deepest,
           extract(epoch FROM clock_timestamp() - min(c.oldest_at))::float8 AS oldest_age_s,
           count(*) >= $1 AS partial
    FROM (
        SELECT CASE WHEN p.parked_at IS NOT NULL THEN 'parked'
                    -- Hashed once. As EXISTS it was a scan over all held lanes for each lane.
                    WHEN w.lane_id IN (SELECT h.lane_id FROM held AS h) THEN 'held'
                    WHEN p.retry_at > now() THEN 'blocked'
                    WHEN p.sent IS NOT NULL THEN 'sent'
                    WHEN b.behind > 0 OR p.requeued_after IS NOT NULL THEN 'ready'
                    ELSE 'idle' END AS state,
               b.behind, e.oldest_at
        FROM (
            (SELECT r.lane_id
             FROM lanekeeper.priority_level AS v
             CROSS JOIN LATERAL (
                 SELECT s.subscription_id AS route
                 UNION ALL
                 SELECT h.route FROM lanekeeper.host_route AS h WHERE h.subscription_id = s.subscription_id
             ) AS o
             CROSS JOIN LATERAL (
                 SELECT r.lane_id FROM lanekeeper.ready AS r
                 WHERE r.route = o.route AND r.priority = v.priority AND r.due_at >= coalesce(
                     (SELECT f.floor FROM unnest($4::int[], $5::timestamptz[]) AS f (route, floor)
                      WHERE f.route = o.route), '-infinity')
                 ORDER BY r.due_at LIMIT $1
             ) AS r LIMIT $1)
            UNION
            SELECT h.lane_id FROM held AS h WHERE h.subscription_id = s.subscription_id
            UNION
            (SELECT p.lane_id
             FROM lanekeeper.progress AS p JOIN lanekeeper.lane AS l ON l.lane_id = p.lane_id
             WHERE p.parked_at IS NOT NULL AND l.subscription_id = s.subscription_id LIMIT $1)
        ) AS w
        JOIN lanekeeper.lane AS l ON l.lane_id = w.lane_id
        CROSS JOIN LATERAL (
            SELECT p.cursor, p.cursor_day, p.retry_at, p.parked_at, p.requeued_after, p.sent
            FROM lanekeeper.progress AS p WHERE p.lane_id = w.lane_id ORDER BY p.version DESC LIMIT 1
        ) AS p
        CROSS JOIN LATERAL (
            SELECT lanekeeper.events_behind(l.session_id, p.cursor, p.cursor_day, n.seq, s.events) AS behind
            FROM lanekeeper.newest_event(l.session_id, (now() AT TIME ZONE 'UTC')::date) AS n
            -- Keeps the reads, here and below, from being copied to every place that uses them.
            OFFSET 0
        ) AS b
        CROSS JOIN LATERAL (
            SELECT CASE WHEN b.behind > 0
                        THEN lanekeeper.first_event_at(l.session_id, p.cursor, p.cursor_day) END AS oldest_at
            OFFSET 0
        ) AS e
    ) AS c
) AS a
CROSS JOIN LATERAL (
    SELECT least(coalesce((SELECT d.dead_letters FROM dead AS d WHERE d.subscription_id = s.subscription_id), 0), $1) AS dead_letters
) AS d
LEFT JOIN lanekeeper.message_count AS c ON c.subscription_id = s.subscription_id
WHERE s.removed_at IS NULL AND ($6::int[] IS NULL OR s.subscription_id = ANY ($6))
ORDER BY s.name LIMIT $2
