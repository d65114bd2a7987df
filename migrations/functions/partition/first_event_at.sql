-- When the first event after the cursor was appended; NULL where there is none. Reads the whole log only for a cursor
-- from before the recent partitions.
-- Index: event's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.first_event_at(p_session_id bigint, p_cursor bigint, p_cursor_day date) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_cursor_day) THEN
        RETURN (
            SELECT e.created_at FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day
            ORDER BY e.seq LIMIT 1);
    END IF;
    RETURN (
        SELECT e.created_at FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day
        ORDER BY e.seq LIMIT 1);
END
$$;
