-- Begins a lane's part of a replay (p_state `active`), or takes it back (`waiting`, `cut`): false where that part is not in
-- the state before, or somebody has the lane's progress locked. The caller holds the lane's lock. What the lane delivers
-- first is another event then: its attempts begin anew, and it gets a ready entry (I13).
-- Index: the primary keys of progress, replay_lane and ready. Rows: one of each.
CREATE OR REPLACE FUNCTION lanekeeper.turn_replay(p_replay_id bigint, p_lane_id bigint, p_state text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_retry_at timestamptz;
BEGIN
    -- Progress first, as everybody does who writes both.
    SELECT p.retry_at INTO v_retry_at FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id
    ORDER BY p.version DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        -- A session that became dormant has no lanes.
        UPDATE lanekeeper.replay_lane AS r SET state = 'cut'
        WHERE r.replay_id = p_replay_id AND r.lane_id = p_lane_id
          AND NOT EXISTS (SELECT FROM lanekeeper.lane AS l WHERE l.lane_id = p_lane_id);
        RETURN false;
    END IF;
    UPDATE lanekeeper.replay_lane AS r SET state = p_state
    WHERE r.replay_id = p_replay_id AND r.lane_id = p_lane_id
      AND r.state = CASE WHEN p_state = 'active' THEN 'waiting' ELSE 'active' END;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The entry of a retry that ends here before its time.
    DELETE FROM lanekeeper.ready AS r
    USING lanekeeper.lane AS l, lanekeeper.priority_level AS v
    WHERE l.lane_id = p_lane_id AND r.route = l.route AND r.priority = v.priority AND r.due_at = v_retry_at
      AND r.lane_id = p_lane_id;
    PERFORM lanekeeper.update_requeued(p_lane_id, true);
    RETURN true;
END
$$;
