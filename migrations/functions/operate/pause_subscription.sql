-- Stops the delivery of a subscription, with a reason, or restarts it, with NULL. False where it does not exist or is so
-- already. Ready entries are inserted all the while, so nothing is missed at the restart (I13).
CREATE OR REPLACE FUNCTION lanekeeper.pause_subscription(p_name text, p_reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id int;
BEGIN
    UPDATE lanekeeper.subscription AS s
    SET paused_at = CASE WHEN p_reason IS NOT NULL THEN clock_timestamp() END, pause_reason = p_reason
    WHERE s.name = p_name AND s.removed_at IS NULL AND (s.paused_at IS NULL) = (p_reason IS NOT NULL)
    RETURNING s.subscription_id INTO v_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO lanekeeper.operation (action, subscription_id, reason)
    VALUES (CASE WHEN p_reason IS NULL THEN 'resume' ELSE 'pause' END, v_id, p_reason);
    PERFORM pg_notify('lanekeeper', '');
    RETURN true;
END
$$;
