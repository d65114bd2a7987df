-- Raises LK001: which session is full, for which subscription, and what to do. The detail is a JSON object for programs;
-- its retry_after_ms is null where nothing is delivered before an operator acts. Shared by all append functions.
CREATE OR REPLACE FUNCTION lanekeeper.raise_queue_full(
    p_session_id bigint, p_subscription text, p_pending bigint, p_max_pending int, p_retry_after_ms bigint,
    p_ord bigint DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_stream  text;
    v_session text;
BEGIN
    SELECT t.name, s.name INTO STRICT v_stream, v_session
    FROM lanekeeper.session AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.session_id = p_session_id;
    RAISE EXCEPTION USING ERRCODE = 'LK001',
        MESSAGE = format('%ssession %L of stream %L is full: it has %s events that are not delivered to the subscription %L, which takes %s: nothing was enqueued',
                         CASE WHEN p_ord IS NOT NULL THEN format('event %s of the array does not fit, ', p_ord) END,
                         left(v_session, 200), v_stream, p_pending, p_subscription, p_max_pending),
        DETAIL = jsonb_build_object(
            'subscription', p_subscription, 'pending', p_pending, 'max_pending', p_max_pending,
            'retry_after_ms', p_retry_after_ms, 'event', p_ord)::text,
        HINT = CASE WHEN p_retry_after_ms IS NULL
                    THEN 'The subscription is paused or its lane parked: resume it, or unpark the lane.'
                    ELSE 'Try again when some are delivered; `lanekeeper lane list` shows what holds them up.' END
               || ' An operator may raise max_pending.';
END
$$;
