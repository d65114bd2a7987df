-- The full number of a transaction whose low 32 bits are known: the one nearest to p_next.
CREATE OR REPLACE FUNCTION lanekeeper.xact_number(p_xid xid, p_next bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p_next - CASE WHEN b.behind < 2147483648 THEN b.behind ELSE b.behind - 4294967296 END
    FROM (SELECT ((p_next - p_xid::text::bigint) % 4294967296 + 4294967296) % 4294967296 AS behind) AS b
$$;
