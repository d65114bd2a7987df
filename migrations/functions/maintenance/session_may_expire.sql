-- Whether a session has lanes and nothing else: no event in the log or restored from the archive, no retry, no parked lane, no dead letter, outcome or
-- history, and no lane that moved within p_days days.
CREATE OR REPLACE FUNCTION lanekeeper.session_may_expire(p_session_id bigint, p_days int) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM lanekeeper.past_event AS e WHERE e.session_id = p_session_id)
        AND EXISTS (SELECT FROM lanekeeper.lane AS l WHERE l.session_id = p_session_id)
        AND NOT EXISTS (
            SELECT FROM lanekeeper.lane AS l
            CROSS JOIN LATERAL (
                SELECT s.removed_at FROM lanekeeper.subscription AS s
                WHERE s.subscription_id = l.subscription_id OFFSET 0
            ) AS s
            CROSS JOIN LATERAL (
                SELECT p.parked_at, p.retry_at, p.changed_at FROM lanekeeper.progress AS p
                WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
            ) AS p
            WHERE l.session_id = p_session_id
              AND (s.removed_at IS NULL AND (p.parked_at IS NOT NULL OR p.retry_at IS NOT NULL)
                   OR p.changed_at > clock_timestamp() - p_days * interval '1 day'
                   OR EXISTS (SELECT FROM lanekeeper.dead AS d WHERE d.lane_id = l.lane_id OFFSET 0)
                   OR EXISTS (SELECT FROM lanekeeper.outcome AS o WHERE o.lane_id = l.lane_id OFFSET 0)
                   OR EXISTS (SELECT FROM lanekeeper.history AS h WHERE h.lane_id = l.lane_id OFFSET 0)));
END
$$;
