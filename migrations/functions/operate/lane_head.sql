-- The oldest event of a lane that is not settled and that its filter lets through: what retry and skip act on.
-- Index: event's primary key. Rows: as many as the filter leaves out, and one.
CREATE OR REPLACE FUNCTION lanekeeper.lane_head(p_session_id bigint, p_cursor bigint, p_day date, p_events text[])
RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_day
      AND (p_events IS NULL OR e.event_type = ANY (p_events))
    ORDER BY e.seq LIMIT 1
$$;
