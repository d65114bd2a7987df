-- Whose keys an append or a receiver uses: what one calls an event by name is no other's. A role's own; the empty name for
-- the owner's members, which trust each other. These may act for others, as a worker does for holders of access tokens: they
-- name them in the setting `lanekeeper.producer`, which means nothing from anybody else.
CREATE OR REPLACE FUNCTION lanekeeper.producer() RETURNS text
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_role text := lanekeeper.calling_role();
BEGIN
    IF lanekeeper.is_owner(v_role) THEN
        RETURN coalesce(current_setting('lanekeeper.producer', true), '');
    END IF;
    RETURN 'role ' || v_role;
END
$$;
