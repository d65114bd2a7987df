-- Whether a lane still needs an event of a day: one that it has not delivered, one that a replay delivers again, or one for a lane that a subscription from
-- the earliest event is yet to get. Reads the whole day.
CREATE OR REPLACE FUNCTION lanekeeper.day_is_needed(p_day date) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_needed boolean;
BEGIN
    EXECUTE format($query$
        WITH e AS MATERIALIZED (
            SELECT e.session_id, max(e.seq) AS seq FROM lanekeeper.%1$I AS e GROUP BY 1
        )
        SELECT EXISTS (
            SELECT FROM e
            JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
            JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
            CROSS JOIN LATERAL (
                SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
                ORDER BY p.version DESC LIMIT 1) AS p
            WHERE p.cursor < e.seq AND (s.events IS NULL OR EXISTS (
                SELECT FROM lanekeeper.%1$I AS m
                WHERE m.session_id = e.session_id AND m.seq > p.cursor AND m.event_type = ANY (s.events)))
        ) OR EXISTS (
            SELECT FROM lanekeeper.replay_lane AS r
            JOIN lanekeeper.lane AS l ON l.lane_id = r.lane_id
            JOIN lanekeeper.%1$I AS m ON m.session_id = l.session_id AND m.seq > r.replayed_to AND m.seq <= r.to_seq
            WHERE r.state IN ('waiting', 'active')
        ) OR EXISTS (
            SELECT FROM e
            JOIN lanekeeper.session AS n ON n.session_id = e.session_id
            JOIN lanekeeper.subscription AS s ON s.stream_id = n.stream_id AND s.removed_at IS NULL
            WHERE s.start_from = 'earliest'
              AND NOT EXISTS (
                  SELECT FROM lanekeeper.lane AS l
                  WHERE l.session_id = e.session_id AND l.subscription_id = s.subscription_id)
              AND (s.events IS NULL OR EXISTS (
                  SELECT FROM lanekeeper.%1$I AS m
                  WHERE m.session_id = e.session_id AND m.event_type = ANY (s.events)))
        )
        $query$, 'event_' || to_char(p_day, 'YYYYMMDD')) INTO v_needed;
    RETURN v_needed;
END
$$;
