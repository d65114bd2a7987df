-- Purpose: the next range of a lane that is replayed, and its first events, in one round trip. Keeps I2 (the caller holds the
-- lane), I11. Index: replay_of_lane, dead_requeued; event's and outcome's primary keys. Rows: at most $2; one without an event
-- where there is none.
SELECT n.replay_id, n.replayed_to, n.to_seq, n.is_last, n.wait_ms, n.has_requeued,
       e.seq, e.day, e.message_id, e.event_type, e.created_at, e.size, e.payload, e.headers
FROM lanekeeper.next_replayed($1, $2) AS n
LEFT JOIN LATERAL lanekeeper.replayed_events(
    $1, n.subscription_id, $3, n.replayed_to, n.to_seq, n.from_day, CASE WHEN n.wait_ms = 0 THEN $2 ELSE 0 END, $4) AS e ON true
ORDER BY e.seq
