-- The route for a new ready entry of a lane, where the writer of the entry has neither the session's append lock nor the
-- lane's lock, or may have an older snapshot than these: p_route, as the caller read it, or, where the lane belongs to a
-- host, as it is now. See lock_route(). Inlined, so that lanes without hosts cost a comparison.
CREATE OR REPLACE FUNCTION lanekeeper.entry_route(p_lane_id bigint, p_route int) RETURNS int
LANGUAGE sql VOLATILE
RETURN CASE WHEN p_route > 0 THEN p_route ELSE lanekeeper.lock_route(p_lane_id) END;
