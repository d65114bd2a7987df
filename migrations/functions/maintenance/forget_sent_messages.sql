-- Forgets up to p_limit chat messages that were sent more than p_days days ago: the next event of their key is a new
-- message then. Returns how many went.
--
-- One process at a time; for the others there is nothing to do. The caller calls again while the limit was reached.
-- Index: sent_message_by_age. Rows: at most p_limit.
CREATE OR REPLACE FUNCTION lanekeeper.forget_sent_messages(p_days int, p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := clock_timestamp() - p_days * interval '1 day';
    v_count  bigint;
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
    RETURN v_count;
END
$$;
