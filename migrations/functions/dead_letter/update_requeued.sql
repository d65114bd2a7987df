-- Writes to a lane's progress which requeued dead letter is first, after that has changed. Where the lane's head is
-- another one now, its attempts begin anew and it gets a ready entry, unless the lane is parked. The caller holds the
-- lane's lock. Progress goes on to the next version: see settle().
CREATE OR REPLACE FUNCTION lanekeeper.update_requeued(p_lane_id bigint, p_front_changed boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_progress lanekeeper.progress%ROWTYPE;
BEGIN
    SELECT p.* INTO STRICT v_progress FROM lanekeeper.progress AS p
    WHERE p.lane_id = p_lane_id ORDER BY p.version DESC LIMIT 1;
    v_progress.requeued_after := lanekeeper.requeued_after(p_lane_id);
    IF p_front_changed THEN
        v_progress.attempts := 0;
        v_progress.crashes := 0;
        v_progress.retry_at := NULL;
        v_progress.last_error := NULL;
    END IF;
    DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id AND p.version = v_progress.version;
    INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, crashes, retry_at, parked_at,
                                     last_error, requeued_after, sent, ack_due_at)
    VALUES (p_lane_id, v_progress.version + 16, v_progress.cursor, v_progress.cursor_day, v_progress.attempts,
            v_progress.crashes, v_progress.retry_at, v_progress.parked_at, v_progress.last_error,
            v_progress.requeued_after, v_progress.sent, v_progress.ack_due_at);
    -- Otherwise the head has its ready entry.
    IF p_front_changed AND v_progress.parked_at IS NULL THEN
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
        SELECT lanekeeper.entry_route(l.lane_id, l.route), 0, clock_timestamp(), l.lane_id
        FROM lanekeeper.lane AS l WHERE l.lane_id = p_lane_id;
        PERFORM lanekeeper.ring();
    END IF;
END
$$;
