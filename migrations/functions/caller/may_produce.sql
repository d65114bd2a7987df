-- Whether the caller may append to a stream with these `producers`: the roles that are named there, their members, and the
-- owner. For streams that name some; the others are everybody's who may execute enqueue().
CREATE OR REPLACE FUNCTION lanekeeper.may_produce(p_producers text[]) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_catalog.pg_roles AS r
        WHERE r.rolname = ANY (p_producers) AND pg_has_role(lanekeeper.calling_role()::name, r.oid, 'USAGE')
    ) OR lanekeeper.is_owner(lanekeeper.calling_role());
END
$$;
