-- Whether the caller may append to a stream with these `producers`: the roles that are named there, their members, and the
-- owner. A worker that appends for the holder of an access token may only where the token is named, as `token NAME`. For
-- streams that name some; the others are everybody's who may execute enqueue().
CREATE OR REPLACE FUNCTION lanekeeper.may_produce(p_producers text[]) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_role  text := lanekeeper.calling_role();
    v_token text;
BEGIN
    IF lanekeeper.is_owner(v_role) THEN
        v_token := nullif(current_setting('lanekeeper.producer', true), '');
        RETURN v_token IS NULL OR v_token = ANY (p_producers);
    END IF;
    RETURN EXISTS (
        SELECT FROM pg_catalog.pg_roles AS r
        WHERE r.rolname = ANY (p_producers) AND pg_has_role(v_role::name, r.oid, 'USAGE')
    );
END
$$;
