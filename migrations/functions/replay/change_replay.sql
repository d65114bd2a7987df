-- Pauses, resumes or cancels a replay that has not ended. Returns its state: running, paused or cancelled. What is being
-- delivered in this moment is finished. A paused replay's lanes go on with what they have not delivered yet; resumed, each
-- goes on where it was. One that is so already stays as it is. SQLSTATE: LK006 there is none, or it has ended.
CREATE OR REPLACE FUNCTION lanekeeper.change_replay(p_replay_id bigint, p_action text, p_reason text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_replay record;
BEGIN
    SELECT y.subscription_id, y.paused_at, y.ending INTO v_replay FROM lanekeeper.replay AS y
    WHERE y.replay_id = p_replay_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = format('there is no replay %s', p_replay_id),
            HINT = 'List them with `lanekeeper replay list --all`.';
    ELSIF v_replay.ending IS NOT NULL THEN
        IF p_action = 'cancel' AND v_replay.ending = 'cancelled' THEN
            RETURN 'cancelled';
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('replay %s has ended (%s): nothing was changed', p_replay_id, v_replay.ending),
            HINT = 'Start another with `lanekeeper replay start`.';
    END IF;
    CASE p_action
    WHEN 'pause' THEN
        UPDATE lanekeeper.replay AS y SET paused_at = coalesce(y.paused_at, clock_timestamp()) WHERE y.replay_id = p_replay_id;
    WHEN 'resume' THEN
        UPDATE lanekeeper.replay AS y SET paused_at = NULL WHERE y.replay_id = p_replay_id;
    WHEN 'cancel' THEN
        UPDATE lanekeeper.replay AS y SET ending = 'cancelled', end_reason = left(p_reason, 500) WHERE y.replay_id = p_replay_id;
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = format('unknown action %L: use pause, resume or cancel', p_action);
    END CASE;
    INSERT INTO lanekeeper.operation (action, subscription_id, reason)
    VALUES (p_action || '_replay', v_replay.subscription_id, left(format('replay %s%s', p_replay_id, ': ' || p_reason), 2000));
    PERFORM lanekeeper.feed_replays();
    RETURN CASE p_action WHEN 'pause' THEN 'paused' WHEN 'resume' THEN 'running' ELSE 'cancelled' END;
END
$$;
