-- The first requeued dead letter of a lane, in the order of after_seq, seq, id; no row where there is none.
-- Index: dead_requeued. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.next_requeued(IN p_lane_id bigint, OUT dead_id bigint, OUT seq bigint, OUT after_seq bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.dead_id, d.seq, d.after_seq FROM lanekeeper.dead AS d
    WHERE d.lane_id = p_lane_id AND d.after_seq IS NOT NULL
    ORDER BY d.after_seq, d.seq, d.dead_id LIMIT 1
$$;
