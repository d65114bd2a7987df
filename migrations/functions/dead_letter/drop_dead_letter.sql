-- Marks a dead letter as dropped; false where it is resolved already or does not exist. A requeued one is not delivered
-- then: a running delivery is waited for up to 5 s. SQLSTATE: LK007 lane busy.
CREATE OR REPLACE FUNCTION lanekeeper.drop_dead_letter(p_dead_id bigint, p_reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    v_lane_id bigint;
    v_before  record;
    v_after   record;
BEGIN
    UPDATE lanekeeper.dead AS d SET resolution = 'dropped', resolved_at = clock_timestamp()
    WHERE d.dead_id = p_dead_id AND d.resolution IS NULL AND d.after_seq IS NULL;
    IF NOT FOUND THEN
        SELECT d.lane_id INTO v_lane_id FROM lanekeeper.dead AS d
        WHERE d.dead_id = p_dead_id AND d.resolution IS NULL;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        PERFORM lanekeeper.lock_lane(v_lane_id);
        SELECT f.seq, f.dead_id INTO v_before FROM lanekeeper.lane_front(v_lane_id) AS f;
        UPDATE lanekeeper.dead AS d
        SET resolution = 'dropped', resolved_at = clock_timestamp(), requeued_at = NULL, after_seq = NULL
        WHERE d.dead_id = p_dead_id AND d.resolution IS NULL;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        SELECT f.seq, f.dead_id INTO v_after FROM lanekeeper.lane_front(v_lane_id) AS f;
        PERFORM lanekeeper.update_requeued(v_lane_id, v_before IS DISTINCT FROM v_after);
    END IF;
    INSERT INTO lanekeeper.operation (action, lane_id, seq, reason)
    SELECT 'drop_dead_letter', d.lane_id, d.seq, p_reason FROM lanekeeper.dead AS d WHERE d.dead_id = p_dead_id;
    RETURN true;
END
$$;
