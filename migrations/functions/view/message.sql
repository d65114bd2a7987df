-- For operators and dashboards: an event for each subscription of its stream, with its state there.
-- - Before the cursor passes it: pending; sending; retrying and parked (the head, after a failed attempt); sent (its
--   acknowledgement is awaited); acked (ahead of an earlier one that is not); requeued (a dead letter that is to be
--   delivered again).
-- - Afterwards: acked, or delivered where the subscription asks for no acknowledgements; failed (a dead letter); or another
--   outcome: expired, dropped, coalesced, skipped.
-- - filtered, unsubscribed: it is not for that subscription, or for none.
CREATE OR REPLACE VIEW lanekeeper.message AS
SELECT t.name AS stream, n.name AS session, e.seq, e.message_id, e.event_type, e.priority, e.created_at,
       e.payload::jsonb AS payload, e.headers, s.name AS subscription,
       CASE WHEN s.subscription_id IS NULL THEN 'unsubscribed'
            WHEN p.requeued_after IS NOT NULL AND EXISTS (
                SELECT FROM lanekeeper.dead AS d
                WHERE d.lane_id = l.lane_id AND d.seq = e.seq AND d.after_seq IS NOT NULL) THEN 'requeued'
            WHEN e.seq <= p.cursor AND (o.to_seq IS NULL OR s.events IS NULL OR e.event_type = ANY (s.events)) THEN
                coalesce(CASE WHEN o.kind = 'dead_lettered' THEN 'failed' ELSE o.kind END, CASE
                    WHEN NOT (s.events IS NULL OR e.event_type = ANY (s.events)) THEN 'filtered'
                    WHEN s.ack = 'none' THEN 'delivered' ELSE 'acked' END)
            WHEN NOT (s.events IS NULL OR e.event_type = ANY (s.events)) THEN 'filtered'
            WHEN e.seq <= p.sent THEN CASE WHEN EXISTS (
                SELECT FROM lanekeeper.sent AS x
                WHERE x.lane_id = l.lane_id AND x.seq = e.seq AND x.acked_at IS NOT NULL) THEN 'acked' ELSE 'sent' END
            WHEN e.seq > head.seq OR p.requeued_after < head.seq THEN 'pending'
            WHEN p.parked_at IS NOT NULL THEN 'parked'
            WHEN p.retry_at > clock_timestamp() THEN 'retrying'
            WHEN EXISTS (SELECT FROM lanekeeper.held_lane AS h WHERE h.lane_id = l.lane_id) THEN 'sending'
            ELSE 'pending' END AS state,
       -- The attempts are those of the requeued dead letter where one comes first.
       CASE WHEN e.seq = head.seq AND (p.requeued_after < head.seq) IS NOT TRUE THEN p.attempts END AS attempts,
       coalesce(CASE WHEN o.to_seq IS NULL OR s.events IS NULL OR e.event_type = ANY (s.events) THEN o.error END, CASE WHEN e.seq = head.seq AND (p.requeued_after < head.seq) IS NOT TRUE
                              THEN p.last_error END) AS error,
       o.replaced_by, o.settled_at, l.lane_id
FROM lanekeeper.event AS e
JOIN lanekeeper.session AS n ON n.session_id = e.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
LEFT JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
LEFT JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
LEFT JOIN LATERAL (
    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    -- Its own, or that of a range: ranges do not overlap, so the nearest one decides.
    SELECT x.kind, x.error, x.replaced_by, x.settled_at, x.to_seq
    FROM (
        SELECT o.* FROM lanekeeper.outcome AS o WHERE o.lane_id = l.lane_id AND o.seq = e.seq
        UNION ALL
        SELECT r.* FROM (
            SELECT o.* FROM lanekeeper.outcome AS o
            WHERE o.lane_id = l.lane_id AND o.seq < e.seq AND o.to_seq IS NOT NULL
            ORDER BY o.seq DESC LIMIT 1
        ) AS r
        WHERE r.to_seq >= e.seq
    ) AS x
    ORDER BY x.seq DESC LIMIT 1
) AS o ON true
LEFT JOIN LATERAL (
    SELECT lanekeeper.lane_head(l.session_id, p.cursor, p.cursor_day, s.events) AS seq
) AS head ON true;
