-- Enters what one hook event tells of its agent session, in the transaction of that event's settlement. `p_observed` is
-- what the event's reader took from it; everything but `type` and `native_session_id` may be absent and then leaves its
-- column alone. False where the event, or a newer one, was entered before: a replay changes nothing.
--
-- A turn opens by a prompt; closes by the agent's stop, also where its begin was not seen; and is cut, which ends only what
-- is open, by whatever takes a stop's place. Where the agent names its turns, a prompt into the running turn begins none, and
-- a late end of the turn before does not end the next. Instants are those of the append, by Postgres' clock (I6).
-- Index: stream's and session's unique names, agent_session's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.observe_hook(p_stream text, p_session text, p_seq bigint, p_at timestamptz, p_observed jsonb)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v         lanekeeper.agent_session%ROWTYPE;
    v_id      bigint;
    v_known   boolean;
    v_running boolean;
    v_turn_id text := p_observed ->> 'turn_id';
    v_host    text;
BEGIN
    SELECT n.session_id INTO STRICT v_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = p_session
    WHERE t.name = p_stream;
    SELECT a.* INTO v FROM lanekeeper.agent_session AS a WHERE a.session_id = v_id;
    v_known := FOUND;
    IF v_known AND v.seq >= p_seq THEN
        RETURN false;
    END IF;
    v.turn_state := coalesce(v.turn_state, 'idle');
    v.turn := coalesce(v.turn, 0);
    v_running := v.turn_state = 'running';

    v.seq := p_seq;
    v.last_activity := p_observed ->> 'type';
    v.last_activity_at := p_at;
    v.native_session_id := p_observed ->> 'native_session_id';
    v.cli := coalesce(p_observed ->> 'cli', v.cli);
    v_host := v.host;
    v.host := coalesce(p_observed ->> 'host', v.host);
    v.cwd := coalesce(p_observed ->> 'cwd', v.cwd);
    v.model := coalesce(p_observed ->> 'model', v.model);
    IF p_observed ? 'transcript_path'
       AND (p_observed ->> 'transcript_from' = 'cli' OR v.transcript_from IS DISTINCT FROM 'cli') THEN
        v.transcript_path := p_observed ->> 'transcript_path';
        v.transcript_from := p_observed ->> 'transcript_from';
    END IF;
    IF p_observed ? 'notification' THEN
        v.last_notification := p_observed ->> 'notification';
        v.last_notification_at := p_at;
    END IF;
    IF p_observed ? 'error' THEN
        v.last_error := p_observed ->> 'error';
        v.last_error_code := p_observed ->> 'error_code';
        v.last_error_at := p_at;
    END IF;
    CASE p_observed ->> 'life'
    WHEN 'starts' THEN
        v.started_at := coalesce(v.started_at, p_at);
        v.ended_at := NULL;
    WHEN 'ends' THEN
        v.ended_at := p_at;
    ELSE NULL;
    END CASE;

    CASE p_observed ->> 'turn'
    WHEN 'opens' THEN
        -- A prompt into a turn that runs, where the agent says that it is the same turn.
        IF NOT (v_running AND v_turn_id IS NOT NULL AND v_turn_id IS NOT DISTINCT FROM v.turn_id) THEN
            v.turn := v.turn + 1;
            v.turn_started_at := p_at;
        END IF;
        v.turn_state := 'running';
        v.turn_id := v_turn_id;
        v.turn_ended_at := NULL;
        v.turn_ended_by := NULL;
        v.ended_at := NULL;
        IF p_observed ? 'prompt' THEN
            v.last_prompt := p_observed ->> 'prompt';
            v.last_prompt_at := p_at;
        END IF;
    WHEN 'closes' THEN
        -- The end of an earlier turn may come late, behind the beginning of the next.
        IF NOT v_running OR v_turn_id IS NULL OR v.turn_id IS NULL OR v_turn_id = v.turn_id THEN
            IF NOT v_running AND v_turn_id IS NOT NULL AND v_turn_id IS DISTINCT FROM v.turn_id THEN
                -- Only its end was reported, as by agents that report nothing else.
                v.turn := v.turn + 1;
                v.turn_started_at := NULL;
            END IF;
            IF p_observed ? 'prompt' AND NOT v_running AND v.last_prompt IS DISTINCT FROM p_observed ->> 'prompt' THEN
                v.last_prompt := p_observed ->> 'prompt';
                v.last_prompt_at := p_at;
            END IF;
            v.turn_state := 'idle';
            v.turn_id := coalesce(v_turn_id, v.turn_id);
            v.turn_ended_at := p_at;
            v.turn_ended_by := p_observed ->> 'native_event';
        END IF;
    WHEN 'cuts' THEN
        IF v_running THEN
            v.turn_state := 'idle';
            v.turn_ended_at := p_at;
            v.turn_ended_by := p_observed ->> 'native_event';
        END IF;
    ELSE NULL;
    END CASE;

    IF v_known THEN
        UPDATE lanekeeper.agent_session AS a
        SET seq = v.seq, cli = v.cli, native_session_id = v.native_session_id, host = v.host, cwd = v.cwd,
            model = v.model, transcript_path = v.transcript_path, transcript_from = v.transcript_from,
            started_at = v.started_at, ended_at = v.ended_at,
            last_activity = v.last_activity, last_activity_at = v.last_activity_at,
            last_prompt = v.last_prompt, last_prompt_at = v.last_prompt_at,
            last_notification = v.last_notification, last_notification_at = v.last_notification_at,
            last_error = v.last_error, last_error_code = v.last_error_code, last_error_at = v.last_error_at,
            turn_state = v.turn_state, turn = v.turn, turn_id = v.turn_id, turn_started_at = v.turn_started_at,
            turn_ended_at = v.turn_ended_at, turn_ended_by = v.turn_ended_by
        WHERE a.session_id = v_id AND a.seq < p_seq;
    ELSE
        INSERT INTO lanekeeper.agent_session (
            session_id, seq, cli, native_session_id, host, cwd, model, transcript_path, transcript_from,
            started_at, ended_at, last_activity, last_activity_at, last_prompt, last_prompt_at,
            last_notification, last_notification_at, last_error, last_error_code, last_error_at,
            turn_state, turn, turn_id, turn_started_at, turn_ended_at, turn_ended_by)
        VALUES (
            v_id, v.seq, v.cli, v.native_session_id, v.host, v.cwd, v.model, v.transcript_path, v.transcript_from,
            v.started_at, v.ended_at, v.last_activity, v.last_activity_at, v.last_prompt, v.last_prompt_at,
            v.last_notification, v.last_notification_at, v.last_error, v.last_error_code, v.last_error_at,
            v.turn_state, v.turn, v.turn_id, v.turn_started_at, v.turn_ended_at, v.turn_ended_by)
        ON CONFLICT DO NOTHING;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF v.host IS DISTINCT FROM v_host THEN
        PERFORM lanekeeper.host_may_differ(p_session);
    END IF;
    RETURN true;
END
$$;
