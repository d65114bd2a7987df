-- What a lane delivers next: an event, a requeued dead letter with its dead_id, or an event of a replay with its replay_id.
-- NULLs where nothing is left.
CREATE OR REPLACE FUNCTION lanekeeper.lane_front(IN p_lane_id bigint, OUT seq bigint, OUT dead_id bigint, OUT replay_id bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_requeued record;
BEGIN
    SELECT lanekeeper.lane_head(l.session_id, p.cursor, p.cursor_day, s.events) INTO STRICT seq
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    CROSS JOIN LATERAL (
        SELECT p.cursor, p.cursor_day FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
        ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE l.lane_id = p_lane_id;
    SELECT n.dead_id, n.seq, n.after_seq, n.replay_id INTO v_requeued FROM lanekeeper.next_requeued(p_lane_id) AS n;
    IF seq IS NULL OR v_requeued.after_seq < seq THEN
        seq := v_requeued.seq;
        dead_id := v_requeued.dead_id;
        replay_id := v_requeued.replay_id;
    END IF;
END
$$;
