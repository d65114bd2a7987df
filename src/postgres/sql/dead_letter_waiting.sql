-- Purpose: dead letters that wait for an operator and are not requeued, the oldest first.
-- $1: one subscription, $2: one session, $3: died since then, $4: died in the last so many ms; NULL for all.
-- Index: dead_unresolved, read from its start. Rows: at most $5.
SELECT d.dead_id, t.name AS stream, n.name AS session, s.name AS subscription, d.seq, d.message_id, d.event_type,
       d.created_at, d.attempts, d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id
FROM lanekeeper.dead AS d
JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
WHERE d.resolution IS NULL AND d.after_seq IS NULL
  AND ($1::int IS NULL OR l.subscription_id = $1) AND ($2::bigint IS NULL OR l.session_id = $2)
  AND ($3::timestamptz IS NULL OR d.died_at >= $3)
  AND ($4::bigint IS NULL OR d.died_at >= clock_timestamp() - $4 * interval '1 ms')
ORDER BY d.dead_id LIMIT $5
