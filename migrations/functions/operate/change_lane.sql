-- One operator action on one lane: retry (now), skip (the head), park, unpark. Returns the lane's new state.
--
-- Waits for a running delivery up to 5 s, because it needs the lane's lock (I2). With p_head, nothing is done unless that
-- seq is still the head: it may have been delivered since the operator looked. skip records an outcome (I4); where the
-- head is a requeued dead letter, it waits for an operator again; where it is replayed, it was settled before. Progress goes on to the next version, so a holder that
-- read the old one settles nothing (I5). SQLSTATEs: LK006 invalid, LK007 lane busy, LK008 another head.
CREATE OR REPLACE FUNCTION lanekeeper.change_lane(
    p_lane_id bigint, p_action text, p_reason text DEFAULT NULL, p_head bigint DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    v_lane     record;
    v_progress lanekeeper.progress%ROWTYPE;
    v_head     bigint;
    v_dead_id  bigint;
    v_replay   bigint;
BEGIN
    SELECT l.lane_id, l.session_id, l.subscription_id, l.route INTO v_lane
    FROM lanekeeper.lane AS l
    WHERE l.lane_id = p_lane_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = format('there is no lane %s', p_lane_id),
            HINT = 'List lanes with `lanekeeper lane list`.';
    END IF;
    PERFORM lanekeeper.lock_lane(p_lane_id);
    -- Progress first, as everybody does who writes it and replay_lane. A close passes held lanes: the row that was waited
    -- for may be gone, and the next one is there.
    LOOP
        SELECT p.* INTO v_progress FROM lanekeeper.progress AS p
        WHERE p.lane_id = p_lane_id ORDER BY p.version DESC LIMIT 1 FOR UPDATE;
        EXIT WHEN FOUND;
        PERFORM FROM lanekeeper.lane AS l WHERE l.lane_id = p_lane_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = format('there is no lane %s any more', p_lane_id),
                HINT = 'List lanes with `lanekeeper lane list`.';
        END IF;
    END LOOP;
    SELECT f.seq, f.dead_id, f.replay_id INTO v_head, v_dead_id, v_replay FROM lanekeeper.lane_front(p_lane_id) AS f;
    IF p_head <> coalesce(v_head, 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'LK008',
            MESSAGE = format('seq %s is not the head of lane %s any more: nothing was changed', p_head, p_lane_id),
            HINT = 'Look at the lane again with `lanekeeper lane show`.';
    END IF;

    CASE p_action
    WHEN 'park' THEN
        v_progress.parked_at := clock_timestamp();
        v_progress.last_error := coalesce(p_reason, v_progress.last_error, 'parked by an operator');
    WHEN 'unpark', 'retry' THEN
        -- The reason for which an operator parked a healthy lane no longer applies.
        IF v_progress.attempts = 0 AND v_progress.crashes = 0 THEN
            v_progress.last_error := NULL;
        END IF;
        v_progress.parked_at := NULL;
        v_progress.attempts := 0;
        v_progress.crashes := 0;
        -- What waits for an acknowledgement is sent again.
        v_progress.sent := NULL;
        v_progress.ack_due_at := NULL;
    WHEN 'skip' THEN
        IF v_head IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('lane %s has no undelivered event to skip', p_lane_id);
        END IF;
        IF v_dead_id IS NOT NULL THEN
            UPDATE lanekeeper.dead AS d SET requeued_at = NULL, after_seq = NULL WHERE d.dead_id = v_dead_id;
            v_progress.requeued_after := lanekeeper.requeued_after(p_lane_id);
        ELSIF v_replay IS NOT NULL THEN
            UPDATE lanekeeper.replay_lane AS r
            SET replayed_to = v_head, state = CASE WHEN v_head >= r.to_seq THEN 'done' ELSE r.state END
            WHERE r.replay_id = v_replay AND r.lane_id = p_lane_id;
            v_progress.requeued_after := lanekeeper.requeued_after(p_lane_id);
        ELSE
            INSERT INTO lanekeeper.outcome (lane_id, seq, kind, error)
            VALUES (p_lane_id, v_head, 'skipped', coalesce(p_reason, v_progress.last_error))
            ON CONFLICT DO NOTHING;
            SELECT e.day INTO v_progress.cursor_day FROM lanekeeper.event AS e
            WHERE e.session_id = v_lane.session_id AND e.seq = v_head AND e.day >= v_progress.cursor_day;
            v_progress.cursor := v_head;
            PERFORM lanekeeper.forget_sent(p_lane_id, v_head);
            IF v_progress.sent <= v_head THEN
                v_progress.sent := NULL;
                v_progress.ack_due_at := NULL;
            END IF;
        END IF;
        v_progress.parked_at := NULL;
        v_progress.attempts := 0;
        v_progress.crashes := 0;
        v_progress.last_error := NULL;
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('unknown action %L: use retry, skip, park or unpark', p_action);
    END CASE;

    DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id AND p.version = v_progress.version;
    INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, crashes, parked_at, last_error,
                                     requeued_after, sent, ack_due_at)
    VALUES (p_lane_id, v_progress.version + 16, v_progress.cursor, v_progress.cursor_day, v_progress.attempts,
            v_progress.crashes, v_progress.parked_at, v_progress.last_error, v_progress.requeued_after,
            v_progress.sent, v_progress.ack_due_at);
    INSERT INTO lanekeeper.operation (action, subscription_id, lane_id, seq, reason)
    VALUES (p_action, v_lane.subscription_id, p_lane_id, v_head, p_reason);
    IF v_progress.parked_at IS NOT NULL THEN
        -- The next claim finds its ready entry to be a spare one.
        RETURN 'parked';
    END IF;
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    VALUES (lanekeeper.entry_route(p_lane_id, v_lane.route), 0, clock_timestamp(), p_lane_id);
    PERFORM lanekeeper.ring();
    RETURN 'ready';
END
$$;
