-- What a lane delivers again before it goes on: its part of a replay, whose after_seq is -1 and whose seq is the next one of
-- that; or its first requeued dead letter, in the order of after_seq, seq, id. No row where there is neither.
-- Index: replay_of_lane, dead_requeued, event's primary key. Rows: one; of a replay, those that its filter leaves out too.
CREATE OR REPLACE FUNCTION lanekeeper.next_requeued(
    IN p_lane_id bigint, OUT dead_id bigint, OUT seq bigint, OUT after_seq bigint, OUT replay_id bigint
)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.dead_id, n.seq, n.after_seq, n.replay_id
    FROM (
        (
            SELECT d.dead_id, d.seq, d.after_seq, NULL::bigint AS replay_id FROM lanekeeper.dead AS d
            WHERE d.lane_id = p_lane_id AND d.after_seq IS NOT NULL
            ORDER BY d.after_seq, d.seq, d.dead_id LIMIT 1
        )
        UNION ALL
        SELECT NULL, (
                   SELECT e.seq FROM lanekeeper.past_event AS e
                   WHERE e.session_id = l.session_id AND e.seq > r.replayed_to AND e.seq <= r.to_seq AND e.day >= r.from_day
                     AND (s.events IS NULL OR e.event_type = ANY (s.events))
                   ORDER BY e.seq LIMIT 1),
               -1, r.replay_id
        FROM lanekeeper.replay_lane AS r
        JOIN lanekeeper.lane AS l ON l.lane_id = r.lane_id
        JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
        WHERE r.lane_id = p_lane_id AND r.state = 'active'
    ) AS n
    ORDER BY n.after_seq LIMIT 1
$$;
