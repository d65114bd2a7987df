-- Whether the log has an event of these types after the cursor and up to p_newest. A function of its own, so that an
-- append to lanes without a filter does not start these scans. Reads the whole log only for a cursor from before the
-- recent partitions.
-- Index: event's primary key. Rows: at most filter_look_back(), which the caller sees to.
CREATE OR REPLACE FUNCTION lanekeeper.has_matching(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_newest bigint, p_types text[]
) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_cursor_day) THEN
        RETURN EXISTS (
            SELECT FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_session_id AND e.day >= p_cursor_day
              AND e.seq > p_cursor AND e.seq <= p_newest AND e.event_type = ANY (p_types));
    END IF;
    RETURN EXISTS (
        SELECT FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.day >= p_cursor_day
          AND e.seq > p_cursor AND e.seq <= p_newest AND e.event_type = ANY (p_types));
END
$$;
