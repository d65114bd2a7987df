-- Purpose: a page of dead letters, the newest first, out of a stretch of the next $6 of them: a filter that fits few must
-- not read them all. Without $3 only those that wait for an operator.
-- $1: subscriptions, $2: one session, NULL for all. $4: with a lower id. $5: with this text in the error or the type.
-- `scanned_to`: the lowest id of the stretch where there is more behind it, and otherwise NULL.
-- Index: dead_unresolved, else dead's primary key, both read backwards. Rows: at most $7, or one without a dead letter.
WITH stretch AS MATERIALIZED (
    SELECT d.dead_id, d.lane_id, d.seq, d.message_id, d.event_type, d.created_at, d.attempts, d.crashes, d.error, d.died_at,
           d.resolution, d.resolved_at, d.requeued_at
    FROM lanekeeper.dead AS d
    WHERE ($3 OR d.resolution IS NULL) AND ($4::bigint IS NULL OR d.dead_id < $4)
    ORDER BY d.dead_id DESC LIMIT $6
), fitting AS (
    SELECT d.dead_id, t.name AS stream, n.name AS session, s.name AS subscription, d.seq, d.message_id, d.event_type,
           d.created_at, d.attempts, d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id
    FROM stretch AS d
    JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    JOIN lanekeeper.session AS n ON n.session_id = l.session_id
    JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
    WHERE ($1::int[] IS NULL OR l.subscription_id = ANY ($1)) AND ($2::bigint IS NULL OR l.session_id = $2)
      AND ($5::text IS NULL OR strpos(lower(d.error), lower($5)) > 0 OR strpos(lower(d.event_type), lower($5)) > 0)
    ORDER BY d.dead_id DESC LIMIT $7
)
SELECT b.scanned_to, f.dead_id, f.stream, f.session, f.subscription, f.seq, f.message_id, f.event_type, f.created_at,
       f.attempts, f.crashes, f.error, f.died_at, f.resolution, f.resolved_at, f.requeued_at, f.lane_id
FROM (SELECT CASE WHEN count(*) >= $6 THEN min(x.dead_id) END AS scanned_to FROM stretch AS x) AS b
LEFT JOIN fitting AS f ON true
ORDER BY f.dead_id DESC
