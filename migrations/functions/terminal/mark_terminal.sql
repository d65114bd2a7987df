-- Puts on record how far the typing of a message into an agent's terminal has come: pasting, entered, confirmed,
-- unconfirmed. NULL: nothing of it was typed after all. With the first stage it notes the agent session's newest event, so
-- that a prompt behind it is told from earlier ones. Can be repeated.
-- Index: terminal_input's primary key; the unique names of stream and session. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.mark_terminal(p_subscription text, p_message_id uuid, p_session text, p_stage text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_session_id bigint;
    v_seq        bigint;
BEGIN
    IF p_stage IS NULL THEN
        DELETE FROM lanekeeper.terminal_input AS i WHERE i.message_id = p_message_id AND i.subscription = p_subscription;
        RETURN;
    END IF;
    UPDATE lanekeeper.terminal_input AS i SET stage = p_stage
    WHERE i.message_id = p_message_id AND i.subscription = p_subscription;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT n.session_id INTO v_session_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = p_session
    WHERE t.name = 'hooks';
    IF FOUND THEN
        SELECT n.seq INTO v_seq
        FROM lanekeeper.newest_event(v_session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n;
    END IF;
    INSERT INTO lanekeeper.terminal_input AS i (message_id, subscription, stage, hooks_seq)
    VALUES (p_message_id, p_subscription, p_stage, coalesce(v_seq, 0))
    ON CONFLICT (message_id, subscription) DO UPDATE SET stage = excluded.stage;
END
$$;
