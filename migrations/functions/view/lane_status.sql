-- For operators: the state of every lane, with its head and the number of events behind. States: removed, parked, held,
-- paused, blocked (the head waits for its retry), sent (it waits for acknowledgements), idle, ready. `behind` is 0 where
-- the lane's subscription receives none of the events after its cursor.
-- Looked up by lane or session it reads one lane; without a condition it reads them all.
CREATE OR REPLACE VIEW lanekeeper.lane_status AS
SELECT t.name AS stream, n.name AS session, s.name AS subscription, l.lane_id,
       CASE WHEN s.removed_at IS NOT NULL THEN 'removed'
            WHEN p.parked_at IS NOT NULL THEN 'parked'
            WHEN h.lane_id IS NOT NULL THEN 'held'
            WHEN s.paused_at IS NOT NULL THEN 'paused'
            WHEN p.retry_at > clock_timestamp() THEN 'blocked'
            WHEN p.sent IS NOT NULL THEN 'sent'
            WHEN head.seq IS NULL AND requeued.seq IS NULL AND (p.requeued_after < 0) IS NOT TRUE THEN 'idle'
            ELSE 'ready' END AS state,
       p.cursor, coalesce(newest.seq, p.cursor) AS newest_seq,
       lanekeeper.events_behind(l.session_id, p.cursor, p.cursor_day, newest.seq, s.events) AS behind,
       coalesce(requeued.seq, head.seq) AS head_seq, coalesce(requeued.created_at, head.created_at) AS head_created_at,
       p.attempts, p.crashes, p.retry_at, p.parked_at, p.last_error, p.changed_at,
       h.worker_id AS held_by, requeued.dead_id AS head_dead_id, p.sent AS sent_seq, p.ack_due_at
FROM lanekeeper.lane AS l
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
CROSS JOIN LATERAL (
    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p
LEFT JOIN LATERAL (
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE e.session_id = l.session_id AND e.day >= p.cursor_day ORDER BY e.seq DESC LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT e.seq, e.created_at FROM lanekeeper.event AS e
    WHERE e.session_id = l.session_id AND e.seq > p.cursor AND e.day >= p.cursor_day
      AND (s.events IS NULL OR e.event_type = ANY (s.events))
    ORDER BY e.seq LIMIT 1
) AS head ON true
LEFT JOIN LATERAL (
    SELECT n.seq, coalesce(d.created_at, e.created_at) AS created_at, n.dead_id FROM lanekeeper.next_requeued(l.lane_id) AS n
    LEFT JOIN lanekeeper.dead AS d ON d.dead_id = n.dead_id
    LEFT JOIN lanekeeper.past_event AS e ON n.replay_id IS NOT NULL AND e.session_id = l.session_id AND e.seq = n.seq
    WHERE p.requeued_after IS NOT NULL AND (head.seq IS NULL OR n.after_seq < head.seq)
) AS requeued ON true
LEFT JOIN lanekeeper.held_lane AS h ON h.lane_id = l.lane_id;
