-- Purpose: replays with how far they are, the newest first: with $1 that one, else those that have not ended, and with $2 the
-- others too; $4: of these streams only, where given. Index: the primary keys of replay and replay_lane, replay_unfinished.
-- Rows: $3; the lanes of each that are not done are counted.
SELECT y.replay_id, s.name AS subscription, t.name AS stream,
       CASE WHEN y.ended_at IS NOT NULL OR y.ending IS NOT NULL THEN y.ending
            WHEN y.paused_at IS NOT NULL THEN 'paused' ELSE 'running' END AS state,
       y.sessions AS pattern, y.from_seq, y.to_seq, y.from_at, y.to_at, y.rate, y.concurrency, y.reason,
       y.lanes, y.events, y.bytes, y.lanes_done + n.done AS lanes_done, n.active, n.waiting,
       y.delivered + n.delivered AS delivered, y.exhausted + n.exhausted AS exhausted,
       y.started_by, y.started_at, y.paused_at, y.ended_at, y.end_reason
FROM (
    SELECT $1::bigint AS replay_id WHERE $1 IS NOT NULL
    UNION ALL
    SELECT c.replay_id FROM (
        SELECT y.replay_id FROM lanekeeper.replay AS y
        WHERE $1::bigint IS NULL AND ($2 OR y.ended_at IS NULL)
          AND ($4::text[] IS NULL OR EXISTS (
              SELECT FROM lanekeeper.subscription AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
              WHERE s.subscription_id = y.subscription_id AND t.name = ANY ($4)))
        ORDER BY y.replay_id DESC LIMIT $3
    ) AS c
) AS c
JOIN lanekeeper.replay AS y ON y.replay_id = c.replay_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = y.subscription_id
JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.state = 'active') AS active, count(*) FILTER (WHERE r.state = 'waiting') AS waiting,
           count(*) FILTER (WHERE r.state = 'done') AS done, coalesce(sum(r.delivered), 0)::bigint AS delivered,
           coalesce(sum(r.exhausted), 0)::bigint AS exhausted
    FROM lanekeeper.replay_lane AS r WHERE r.replay_id = y.replay_id
) AS n
ORDER BY y.replay_id DESC
