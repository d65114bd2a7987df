-- Tells the lifecycle feed what happened to a session, in the caller's transaction, where a subscription of the feed
-- exists. Its session there is `session STREAM/SESSION`. Nothing is told of the feed's own sessions, and nothing where an
-- operator has closed that session of the feed, or where it is full. The engine's own stream takes appends of the owner's
-- members and of nobody else, so a close or an interrupt by another role is not told.
CREATE OR REPLACE FUNCTION lanekeeper.publish_session(p_stream text, p_session text, p_event_type text, p_payload jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_name     text := 'session ' || p_stream || '/' || p_session;
    v_producer text := coalesce(current_setting('lanekeeper.producer', true), '');
BEGIN
    IF p_stream = 'lifecycle' OR NOT lanekeeper.is_owner(lanekeeper.calling_role()) OR NOT EXISTS (
        SELECT FROM lanekeeper.subscription AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
        WHERE t.name = 'lifecycle' AND s.removed_at IS NULL)
    THEN
        RETURN;
    END IF;
    -- A session's name has at most 512 bytes.
    WHILE octet_length(v_name) > 512 LOOP
        v_name := left(v_name, -1);
    END LOOP;
    PERFORM set_config('lanekeeper.producer', '', true);
    PERFORM lanekeeper.enqueue('lifecycle', v_name, p_event_type,
                               jsonb_build_object('stream', p_stream, 'session', p_session) || p_payload);
    PERFORM set_config('lanekeeper.producer', v_producer, true);
EXCEPTION WHEN SQLSTATE 'LK001' OR SQLSTATE 'LK002' THEN
    NULL;
END
$$;
