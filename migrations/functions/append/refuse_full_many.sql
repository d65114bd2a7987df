-- Raises LK001 where a session has no room for all of a bulk call's events, and names the first one in the array that does
-- not fit. Per session: p_session_ids and p_newest, its newest seq; per event: the ord of its session. The caller has the
-- append locks.
-- Rows: the sessions' lanes; the events once for each lane that is full.
CREATE OR REPLACE FUNCTION lanekeeper.refuse_full_many(
    p_session_ids bigint[], p_newest bigint[], p_session_ords int[], p_events jsonb
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_lane record;
BEGIN
    SELECT a.session_id, f.subscription, f.pending, f.max_pending, f.retry_after_ms, i.ord INTO v_lane
    FROM (
        SELECT p_session_ids[o.session_ord] AS session_id, p_newest[o.session_ord] AS newest, o.session_ord,
               count(*) AS adding
        FROM unnest(p_session_ords) AS o (session_ord)
        GROUP BY o.session_ord
    ) AS a
    CROSS JOIN LATERAL lanekeeper.full_lanes(a.session_id, a.newest, a.adding) AS f
    -- The first event that the lane has no room for, if it receives so many.
    CROSS JOIN LATERAL (
        SELECT i.ord
        FROM ROWS FROM (jsonb_array_elements(p_events), unnest(p_session_ords)) WITH ORDINALITY AS i (e, session_ord, ord)
        WHERE i.session_ord = a.session_ord AND (f.types IS NULL OR i.e ->> 'event_type' = ANY (f.types))
        ORDER BY i.ord OFFSET greatest(f.max_pending - f.pending, 0) LIMIT 1
    ) AS i
    ORDER BY i.ord, f.retry_after_ms DESC NULLS FIRST LIMIT 1;
    IF FOUND THEN
        PERFORM lanekeeper.raise_queue_full(v_lane.session_id, v_lane.subscription, v_lane.pending, v_lane.max_pending,
                                            v_lane.retry_after_ms, v_lane.ord);
    END IF;
END
$$;
