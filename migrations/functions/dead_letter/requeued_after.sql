-- Where a lane's requeued dead letters begin, as progress.requeued_after has it: -1 while a replay has its turn, else the first
-- after_seq; NULL where there is neither.
-- Index: replay_of_lane, dead_requeued. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.requeued_after(p_lane_id bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.replay_lane AS r WHERE r.lane_id = p_lane_id AND r.state = 'active') THEN
        RETURN -1;
    END IF;
    RETURN (
        SELECT d.after_seq FROM lanekeeper.dead AS d
        WHERE d.lane_id = p_lane_id AND d.after_seq IS NOT NULL
        ORDER BY d.after_seq, d.seq, d.dead_id LIMIT 1);
END
$$;
