-- A JSON Merge Patch (RFC 7396) applied to a target. A patch that is no object replaces the target; one that is an object
-- makes an object of whatever was there.
--
-- Bound: it recurses as deep as the patch, which the server's max_stack_depth ends with 54001.
CREATE OR REPLACE FUNCTION lanekeeper.merge_patch(p_target jsonb, p_patch jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF jsonb_typeof(p_patch) <> 'object' THEN
        RETURN p_patch;
    END IF;
    RETURN coalesce((
        SELECT jsonb_object_agg(t.key, t.value)
        FROM jsonb_each(CASE WHEN jsonb_typeof(p_target) = 'object' THEN p_target ELSE '{}' END) AS t
        WHERE NOT p_patch ? t.key
    ), '{}') || coalesce((
        SELECT jsonb_object_agg(p.key, lanekeeper.merge_patch(
            CASE WHEN jsonb_typeof(p_target) = 'object' THEN p_target -> p.key END, p.value))
        FROM jsonb_each(p_patch) AS p
        WHERE jsonb_typeof(p.value) <> 'null'
    ), '{}');
END
$$;
