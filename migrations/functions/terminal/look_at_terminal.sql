-- What is known before a message is typed into an agent's terminal, and while it is waited for: how far it has come, and
-- whether the agent has reported a prompt since. One row.
-- Index: terminal_input's primary key; the unique names of stream and session; agent_session's primary key; event's primary
-- key. Rows: the agent session's events since the typing began.
CREATE OR REPLACE FUNCTION lanekeeper.look_at_terminal(
    IN p_subscription text, IN p_message_id uuid, IN p_session text,
    OUT stage text, OUT is_prompted boolean, OUT is_live boolean, OUT native_session_id text, OUT cwd text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    v_hooks_seq  bigint;
    v_day        date;
BEGIN
    SELECT n.session_id INTO v_session_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = p_session
    WHERE t.name = 'hooks';
    SELECT i.stage, i.hooks_seq, (i.begun_at AT TIME ZONE 'UTC')::date INTO stage, v_hooks_seq, v_day
    FROM lanekeeper.terminal_input AS i WHERE i.message_id = p_message_id AND i.subscription = p_subscription;
    is_prompted := EXISTS (
        SELECT FROM lanekeeper.event AS e
        WHERE e.session_id = v_session_id AND e.seq > v_hooks_seq AND e.day >= v_day
          AND e.event_type = 'user_prompt_submit');
    SELECT a.ended_at IS NULL, a.native_session_id, a.cwd INTO is_live, native_session_id, cwd
    FROM lanekeeper.agent_session AS a WHERE a.session_id = v_session_id;
    is_live := coalesce(is_live, false);
END
$$;
