-- Raises LK001 where the session has no room for one more event of this type: see full_lanes(). Of several lanes that are
-- full it names the one that has room last. p_newest is the session's newest seq. The caller has the append lock.
-- An interrupt is let in: it takes the place of what waits.
CREATE OR REPLACE FUNCTION lanekeeper.refuse_full(p_session_id bigint, p_newest bigint, p_event_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_lane record;
BEGIN
    IF coalesce(current_setting('lanekeeper.interrupting', true), '') <> ''
        AND current_setting('lanekeeper.interrupting', true) = lanekeeper.interrupt_pass(p_session_id)
    THEN
        RETURN;
    END IF;
    SELECT f.subscription, f.pending, f.max_pending, f.retry_after_ms INTO v_lane
    FROM lanekeeper.full_lanes(p_session_id, p_newest, 1) AS f
    WHERE f.types IS NULL OR p_event_type = ANY (f.types)
    ORDER BY f.retry_after_ms DESC NULLS FIRST LIMIT 1;
    IF FOUND THEN
        PERFORM lanekeeper.raise_queue_full(p_session_id, v_lane.subscription, v_lane.pending, v_lane.max_pending,
                                            v_lane.retry_after_ms);
    END IF;
END
$$;
