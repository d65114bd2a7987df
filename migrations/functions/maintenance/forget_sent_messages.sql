-- Forgets up to p_limit chat messages that were sent more than p_days days ago (the next event of their key is a new
-- message then), and as many messages that were typed into terminals. Returns how many went of the more numerous kind.
--
-- One process at a time; for the others there is nothing to do. The caller calls again while the limit was reached.
-- Index: sent_message_by_age, terminal_input_by_age. Rows: at most p_limit of each.
CREATE OR REPLACE FUNCTION lanekeeper.forget_sent_messages(p_days int, p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := clock_timestamp() - p_days * interval '1 day';
    v_count  bigint;
    v_typed  bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(2)) THEN
        RETURN 0;
    END IF;
    DELETE FROM lanekeeper.sent_message AS m
    USING (
        SELECT x.subscription_id, x.session_id, x.chat, x.key, x.part FROM lanekeeper.sent_message AS x
        WHERE x.sent_at < v_before ORDER BY x.sent_at LIMIT p_limit
    ) AS x
    WHERE m.subscription_id = x.subscription_id AND m.session_id = x.session_id AND m.chat = x.chat
      AND m.key = x.key AND m.part = x.part;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM lanekeeper.terminal_input AS i
    USING (
        SELECT x.message_id, x.subscription FROM lanekeeper.terminal_input AS x
        WHERE x.begun_at < v_before ORDER BY x.begun_at LIMIT p_limit
    ) AS x
    WHERE i.message_id = x.message_id AND i.subscription = x.subscription;
    GET DIAGNOSTICS v_typed = ROW_COUNT;
    RETURN greatest(v_count, v_typed);
END
$$;
