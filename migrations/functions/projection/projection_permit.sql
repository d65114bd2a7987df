-- What settle_projection() demands: a worker that holds the lane asks for it on its own connection, once the projection's
-- function has ended. It is good for this settlement alone, and for the role that the projection runs as. Only the owner
-- can read the secret in it, so the role can neither make one nor learn one before its function has ended.
-- Index: none. Rows: none but the secret.
CREATE OR REPLACE FUNCTION lanekeeper.projection_permit(
    p_role text, p_lane_id bigint, p_version bigint, p_cursor bigint, p_day date, p_history_from bigint, p_dead_id bigint,
    p_dead_seq bigint
) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_secret text := lanekeeper.read_lock_secret()::text;
BEGIN
    -- The role's name is last: the numbers before it cannot be taken for a part of it.
    RETURN sha256(convert_to(
        concat_ws(' ', v_secret, 'projection', p_lane_id, p_version, p_cursor, p_day, coalesce(p_history_from, -1),
                  coalesce(p_dead_id, -1), coalesce(p_dead_seq, -1), p_role, v_secret), 'UTF8'));
END
$$;
