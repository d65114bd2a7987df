-- Has dead letters delivered again: at their own place, before everything that their lane has not delivered yet; or, with
-- p_at_end, after what is committed by now. Returns the result for each id: requeued, requeued_before (it waits for its
-- delivery already), resolved (an operator or a delivery has dealt with it). One transaction, all or nothing. SQLSTATEs:
-- LK002 session closed, LK006 invalid, LK007 lane busy.
--
-- The event is not appended again: its seq stays, and other subscriptions are not concerned. dead.after_seq is the seq
-- behind which it comes; progress.requeued_after is the lane's least, NULL in all other lanes, so that these pay nothing.
-- Whoever changes what is requeued holds the lane's lock: a holder's view stays true while it holds the lane (I2). A
-- running delivery is waited for up to 5 s for each lane. Lanes are locked in the order of their ids: two calls that name
-- the same ones do not deadlock. A parked lane or removed subscription is refused, because nothing would be delivered.
CREATE OR REPLACE FUNCTION lanekeeper.requeue_dead_letters(
    p_dead_ids bigint[], p_at_end boolean DEFAULT false, p_reason text DEFAULT NULL
) RETURNS TABLE (dead_id bigint, result text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
    v_unknown bigint[];
    v_lane    record;
    v_dead    record;
    v_before  record;
    v_after   record;
    v_newest  bigint;
    v_any     boolean;
BEGIN
    SELECT array_agg(u.dead_id) INTO v_unknown FROM unnest(p_dead_ids) AS u (dead_id)
    WHERE NOT EXISTS (SELECT FROM lanekeeper.dead AS d WHERE d.dead_id = u.dead_id);
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('there is no dead letter %s: nothing was changed', array_to_string(v_unknown, ', ')),
            HINT = 'List them with `lanekeeper dead list --all`.';
    END IF;
    -- Lanes in the order of their ids: two calls that name the same ones do not deadlock.
    FOR v_lane IN
        SELECT l.lane_id, l.session_id, l.subscription_id, s.name, s.removed_at
        FROM lanekeeper.lane AS l JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
        WHERE l.lane_id IN (SELECT d.lane_id FROM lanekeeper.dead AS d WHERE d.dead_id = ANY (p_dead_ids))
        ORDER BY l.lane_id
    LOOP
        IF v_lane.removed_at IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('the subscription %s was removed and delivers nothing: nothing was changed', v_lane.name),
                HINT = 'Apply a file that has it, then requeue.';
        END IF;
        PERFORM lanekeeper.lock_lane(v_lane.lane_id);
        IF EXISTS (
            SELECT FROM lanekeeper.session AS n
            WHERE n.session_id = v_lane.session_id AND n.closed_at IS NOT NULL AND NOT n.draining)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'LK002',
                MESSAGE = format('the session of lane %s is closed and delivers nothing: nothing was changed', v_lane.lane_id),
                HINT = 'Reopen it with `lanekeeper session reopen`, then requeue.';
        END IF;
        SELECT f.seq, f.dead_id INTO v_before FROM lanekeeper.lane_front(v_lane.lane_id) AS f;
        SELECT greatest(p.cursor, coalesce(e.seq, 0)), p.parked_at IS NOT NULL INTO v_newest, v_any
        FROM (
            SELECT p.cursor, p.cursor_day, p.parked_at FROM lanekeeper.progress AS p
            WHERE p.lane_id = v_lane.lane_id ORDER BY p.version DESC LIMIT 1
        ) AS p
        LEFT JOIN LATERAL (
            SELECT e.seq FROM lanekeeper.event AS e
            WHERE e.session_id = v_lane.session_id AND e.day >= p.cursor_day ORDER BY e.seq DESC LIMIT 1
        ) AS e ON true;
        IF v_any THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('lane %s is parked and delivers nothing: nothing was changed', v_lane.lane_id),
                HINT = format('See why with `lanekeeper lane show %1$s`, unpark it with `lanekeeper lane unpark %1$s`, '
                              'then requeue.', v_lane.lane_id);
        END IF;
        v_any := false;
        FOR v_dead IN
            SELECT d.dead_id, d.seq, d.resolution, d.after_seq FROM lanekeeper.dead AS d
            WHERE d.dead_id = ANY (p_dead_ids) AND d.lane_id = v_lane.lane_id
            ORDER BY d.dead_id FOR UPDATE
        LOOP
            dead_id := v_dead.dead_id;
            IF v_dead.resolution IS NOT NULL THEN
                result := 'resolved';
            ELSIF v_dead.after_seq IS NOT NULL THEN
                result := 'requeued_before';
            ELSE
                result := 'requeued';
                v_any := true;
                UPDATE lanekeeper.dead AS d
                SET requeued_at = clock_timestamp(),
                    after_seq = CASE WHEN p_at_end THEN v_newest ELSE v_dead.seq - 1 END
                WHERE d.dead_id = v_dead.dead_id;
                INSERT INTO lanekeeper.operation (action, subscription_id, lane_id, seq, reason)
                VALUES ('requeue_dead_letter', v_lane.subscription_id, v_lane.lane_id, v_dead.seq, p_reason);
            END IF;
            RETURN NEXT;
        END LOOP;
        IF v_any THEN
            SELECT f.seq, f.dead_id INTO v_after FROM lanekeeper.lane_front(v_lane.lane_id) AS f;
            PERFORM lanekeeper.update_requeued(v_lane.lane_id, v_before IS DISTINCT FROM v_after);
        END IF;
    END LOOP;
END
$$;
