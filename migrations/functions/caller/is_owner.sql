-- Whether a role is a member of the role that owns the schema, as workers and operators are.
CREATE OR REPLACE FUNCTION lanekeeper.is_owner(p_role text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pg_has_role(p_role::name, (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'lanekeeper'), 'MEMBER');
END
$$;
