-- How many events a lane is behind: those after its cursor, up to p_newest, the session's newest. 0 where its subscription
-- receives none of them (p_types; NULL: it receives all): no append makes such a lane due, so it is idle for ever, not
-- late. As in lane_is_due(), a run of filter_look_back() events counts whatever their types: a worker passes them.
-- `status`, `session list`, `lane list` and the metrics count by this.
-- Index: event's primary key. Rows: at most filter_look_back().
CREATE OR REPLACE FUNCTION lanekeeper.events_behind(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_newest bigint, p_types text[]
) RETURNS bigint
LANGUAGE sql STABLE
RETURN CASE
    WHEN (p_newest > p_cursor) IS NOT TRUE THEN 0
    WHEN p_types IS NULL OR p_newest - p_cursor >= lanekeeper.filter_look_back()
         OR lanekeeper.has_matching(p_session_id, p_cursor, p_cursor_day, p_newest, p_types) THEN p_newest - p_cursor
    ELSE 0 END;
