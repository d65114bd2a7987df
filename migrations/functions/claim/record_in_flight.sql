-- Replaces the ready entries of lanes whose delivery takes long by entries due after p_delay_ms, so that claims need not
-- scan them until then. The delay is the frozen limit: should the holder vanish without trace, the entry brings the lane
-- back (I13). Called by the holder; one statement, so a lane is never without an entry.
CREATE OR REPLACE FUNCTION lanekeeper.record_in_flight(
    p_lanes bigint[], p_routes int[], p_priorities smallint[], p_ready_ctids tid[], p_ready_ids bigint[], p_delay_ms bigint
) RETURNS TABLE (lane_id bigint, ready_ctid tid, ready_id bigint)
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (
        DELETE FROM lanekeeper.ready AS r
        USING generate_series(1, cardinality(p_lanes)) AS i
        WHERE r.ctid = p_ready_ctids[i] AND r.id = p_ready_ids[i]
    )
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT p_routes[i], p_priorities[i], clock_timestamp() + p_delay_ms * interval '1 ms', p_lanes[i]
    FROM generate_series(1, cardinality(p_lanes)) AS i
    RETURNING lane_id, ctid, id
$$;
