-- How many undelivered events a lane has: those behind its cursor up to p_newest that are in the log and that its
-- subscription receives (p_types; NULL: all). What a worker has delivered and not settled yet counts, so the figure is
-- never too low.
--
-- Without a filter two seqs tell it, since a log has no gaps (I1). With one, events are counted, at most
-- 4 * p_max_pending of them: what lies behind those counts whatever its type, so the cost of an append stays bounded (I9).
-- Reads the whole log only for a cursor from before the recent partitions.
-- As full_lanes(), it relies on its caller's planner settings.
-- Index: event's primary key. Rows: one, or with a filter 4 * p_max_pending.
CREATE OR REPLACE FUNCTION lanekeeper.pending_events(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_newest bigint, p_types text[], p_max_pending int
) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_recent boolean := EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_cursor_day);
    v_count  bigint;
    v_last   bigint;
BEGIN
    IF p_types IS NULL THEN
        IF v_recent THEN
            SELECT e.seq - 1 INTO v_last FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_session_id AND e.day >= p_cursor_day AND e.seq > p_cursor AND e.seq <= p_newest
            ORDER BY e.seq LIMIT 1;
        ELSE
            SELECT e.seq - 1 INTO v_last FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id AND e.day >= p_cursor_day AND e.seq > p_cursor AND e.seq <= p_newest
            ORDER BY e.seq LIMIT 1;
        END IF;
        RETURN p_newest - coalesce(v_last, p_newest);
    END IF;
    IF v_recent THEN
        SELECT count(*) FILTER (WHERE e.event_type = ANY (p_types)), max(e.seq) INTO v_count, v_last
        FROM (
            SELECT e.seq, e.event_type FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_session_id AND e.day >= p_cursor_day AND e.seq > p_cursor AND e.seq <= p_newest
            ORDER BY e.seq LIMIT 4 * p_max_pending
        ) AS e;
    ELSE
        SELECT count(*) FILTER (WHERE e.event_type = ANY (p_types)), max(e.seq) INTO v_count, v_last
        FROM (
            SELECT e.seq, e.event_type FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id AND e.day >= p_cursor_day AND e.seq > p_cursor AND e.seq <= p_newest
            ORDER BY e.seq LIMIT 4 * p_max_pending
        ) AS e;
    END IF;
    RETURN v_count + p_newest - coalesce(v_last, p_newest);
END
$$;
