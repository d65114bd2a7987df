-- Appends a bulk call's events one by one, for enqueue_many() on a stream whose sessions can be full, or whose event types
-- have schemas: where a session has no room for an event (LK001), or a schema does not take its payload (LK006), the error
-- names the event. The events are checked, and the sessions locked.
CREATE OR REPLACE FUNCTION lanekeeper.enqueue_each(p_stream text, p_events jsonb)
RETURNS TABLE (message_id uuid, seq bigint, duplicate boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_event   record;
    v_full    jsonb;
    v_message text;
    v_detail  text;
    v_hint    text;
BEGIN
    FOR v_event IN SELECT i.e, i.ord FROM jsonb_array_elements(p_events) WITH ORDINALITY AS i (e, ord) ORDER BY i.ord LOOP
        RETURN QUERY
        SELECT r.message_id, r.seq, r.duplicate
        FROM lanekeeper.enqueue(
            p_stream, v_event.e ->> 'session', v_event.e ->> 'event_type', v_event.e -> 'payload',
            (v_event.e ->> 'message_id')::uuid, v_event.e ->> 'dedupe_key',
            coalesce((v_event.e ->> 'priority')::smallint, 0::smallint),
            coalesce(nullif(v_event.e -> 'headers', 'null'), '{}')) AS r;
    END LOOP;
EXCEPTION WHEN SQLSTATE 'LK001' OR SQLSTATE 'LK006' THEN
    GET STACKED DIAGNOSTICS v_message = MESSAGE_TEXT, v_detail = PG_EXCEPTION_DETAIL, v_hint = PG_EXCEPTION_HINT;
    v_full := coalesce(nullif(v_detail, ''), '{}')::jsonb || jsonb_build_object('event', v_event.ord);
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, DETAIL = v_full::text, HINT = v_hint,
        MESSAGE = format(CASE SQLSTATE WHEN 'LK001' THEN 'event %s of the array does not fit, %s' ELSE 'event %s of the array: %s' END,
                         v_event.ord, v_message);
END
$$;
