-- Purpose: dead letters, the newest first; without $3 only those that wait for an operator.
-- $1: one subscription, $2: one session, NULL for all. Index: dead_unresolved, else dead's primary
-- key, both read backwards. Rows: at most $4.
SELECT d.dead_id, t.name AS stream, n.name AS session, s.name AS subscription, d.seq, d.message_id, d.event_type,
       d.created_at, d.attempts, d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id
FROM lanekeeper.dead AS d
JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
WHERE ($3 OR d.resolution IS NULL)
  AND ($1::int IS NULL OR l.subscription_id = $1) AND ($2::bigint IS NULL OR l.session_id = $2)
ORDER BY d.dead_id DESC LIMIT $4
