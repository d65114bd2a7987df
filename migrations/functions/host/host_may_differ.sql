-- Asks finish_moving() to look at the lanes of the sessions with this name, in the caller's transaction. Nothing is written
-- where no subscription is host-bound. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.host_may_differ(p_session text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO lanekeeper.host_change (session)
    SELECT p_session WHERE EXISTS (SELECT FROM lanekeeper.subscription AS s WHERE s.host_bound);
END
$$;
