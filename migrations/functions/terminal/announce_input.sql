-- Enters a message that was typed into an agent's terminal in the agent registry, and tells the session's other
-- destinations of it: by an event `user_input` of the agent session, with the message as its payload. Once, however often
-- it is called. Nothing where no hook ever reported the session, or it is closed.
--
-- SQLSTATE 55P03 where another transaction appends to the agent session and does not end within 2 s: nothing was written.
-- Index: the unique names of stream and session; agent_session's primary key. Rows: one of each.
CREATE OR REPLACE FUNCTION lanekeeper.announce_input(p_session text, p_message_id uuid, p_payload jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '2s'
AS $$
DECLARE
    v_session_id bigint;
BEGIN
    SELECT n.session_id INTO v_session_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = p_session
    WHERE t.name = 'hooks' AND n.closed_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM lanekeeper.enqueue(
        'hooks', p_session, 'user_input', p_payload || jsonb_build_object('message_id', p_message_id),
        dedupe_key => 'input:' || p_message_id);
    UPDATE lanekeeper.agent_session AS a
    SET last_input = left(p_payload ->> 'content', 2000), last_input_origin = left(p_payload ->> 'origin', 63),
        last_input_at = clock_timestamp(), last_activity = 'user_input', last_activity_at = clock_timestamp()
    WHERE a.session_id = v_session_id;
END
$$;
