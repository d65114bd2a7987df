-- A lane's route, which finish_moving() leaves alone until the transaction ends (I13). In REPEATABLE READ and SERIALIZABLE
-- it raises 40001 where the lane was moved after the snapshot.
-- Index: lane's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.lock_route(p_lane_id bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_route int;
BEGIN
    SELECT l.route INTO v_route FROM lanekeeper.lane AS l WHERE l.lane_id = p_lane_id FOR SHARE;
    RETURN v_route;
END
$$;
