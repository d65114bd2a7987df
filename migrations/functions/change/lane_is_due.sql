-- Whether a lane at this cursor has something to do: an event that its subscription receives, or as many filtered events
-- as make an append wake the lane.
-- Index: event's primary key. Rows: at most filter_look_back().
CREATE OR REPLACE FUNCTION lanekeeper.lane_is_due(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_types text[]
) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day
          AND (p_types IS NULL OR e.event_type = ANY (p_types)
               OR e.seq >= p_cursor + lanekeeper.filter_look_back()));
END
$$;
