-- Begins a transaction that feeds a projection. Only the role that the subscription names may. Until the transaction ends
-- nobody switches the projection to a rebuilt read model: what the function writes would be missing from it.
-- Index: subscription's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.begin_projection(p_subscription_id int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM lanekeeper.subscription AS s
    WHERE s.subscription_id = p_subscription_id AND s.adapter = 'projection' AND s.settings ->> 'role' = session_user;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('no projection %s runs as the role %I: nothing was changed', p_subscription_id, session_user);
    END IF;
    PERFORM pg_advisory_xact_lock_shared(lanekeeper.projection_lock(p_subscription_id));
END
$$;
