-- What a lane leaves out at its front before it delivers on, where its subscription has max_age or drops its oldest events:
-- - expired: events up to the last one that is older than p_max_age_ms (NULL: none is). What stands before such an event is
--   too old as well, whatever the server's clock showed then. Only Postgres' clock decides (I6).
-- - dropped: behind those, the oldest of what is more than p_max_pending events (NULL: any number). p_types is the
--   subscription's filter (NULL: it has none): what it leaves out does not count.
-- Each as the range from its first event that the subscription receives; NULL where there is none. day: of the last one.
-- The holder of the lane calls it, and passes the ranges with their outcomes in a settlement. So nothing goes that is being
-- delivered.
--
-- Bound: some twenty look-ups for expired events, however many they are. For dropped ones none where the lane is not that
-- far behind; beyond, one, or with a filter as many rows as the lane is behind.
-- Index: event's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.surplus(
    IN p_session_id bigint, IN p_cursor bigint, IN p_cursor_day date, IN p_types text[], IN p_max_age_ms bigint,
    IN p_max_pending int,
    OUT expired_from bigint, OUT expired_to bigint, OUT dropped_from bigint, OUT dropped_to bigint, OUT day date
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_newest bigint;
    v_base   bigint := p_cursor;
    -- An event that is too old, and one behind it that is not.
    v_old    bigint;
    v_young  bigint;
    v_middle bigint;
    v_at     timestamptz;
    v_limit  timestamptz := clock_timestamp() - p_max_age_ms * interval '1 ms';
BEGIN
    SELECT n.seq INTO v_newest
    FROM lanekeeper.newest_event(p_session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n;
    IF p_max_age_ms IS NOT NULL AND v_newest > p_cursor THEN
        SELECT e.seq, e.created_at INTO v_old, v_at FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day ORDER BY e.seq LIMIT 1;
        IF v_at < v_limit THEN
            v_young := v_newest + 1;
            WHILE v_young - v_old > 1 LOOP
                v_middle := (v_old + v_young) / 2;
                SELECT e.created_at INTO STRICT v_at FROM lanekeeper.event AS e
                WHERE e.session_id = p_session_id AND e.seq = v_middle AND e.day >= p_cursor_day;
                IF v_at < v_limit THEN
                    v_old := v_middle;
                ELSE
                    v_young := v_middle;
                END IF;
            END LOOP;
            expired_from := lanekeeper.lane_head(p_session_id, p_cursor, p_cursor_day, p_types);
            IF expired_from <= v_old THEN
                expired_to := v_old;
                v_base := v_old;
            ELSE
                expired_from := NULL;
            END IF;
        END IF;
    END IF;
    IF v_newest - v_base > p_max_pending THEN
        IF p_types IS NULL THEN
            dropped_to := v_newest - p_max_pending;
        ELSE
            SELECT e.seq INTO dropped_to FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id AND e.seq > v_base AND e.day >= p_cursor_day AND e.event_type = ANY (p_types)
            ORDER BY e.seq DESC OFFSET p_max_pending LIMIT 1;
        END IF;
        dropped_from := lanekeeper.lane_head(p_session_id, v_base, p_cursor_day, p_types);
        IF (dropped_from <= dropped_to) IS NOT TRUE THEN
            dropped_from := NULL;
            dropped_to := NULL;
        END IF;
    END IF;
    SELECT e.day INTO day FROM lanekeeper.event AS e
    WHERE e.session_id = p_session_id AND e.seq = coalesce(dropped_to, expired_to) AND e.day >= p_cursor_day;
END
$$;
