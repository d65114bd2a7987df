-- The secret from which the keys of advisory locks are made: see append_lock(). For the owner of the schema, and for
-- functions that run as the owner.
CREATE OR REPLACE FUNCTION lanekeeper.read_lock_secret() RETURNS uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single);
END
$$;
