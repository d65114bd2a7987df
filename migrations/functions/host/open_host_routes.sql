-- The routes that a worker with this host label scans, of each host-bound subscription: that of its host, and that of lanes
-- without a host. Makes those that are missing. In a short transaction: another one that makes the same route waits for it.
-- Index: host_route's unique key. Rows: two for each subscription that is host-bound.
CREATE OR REPLACE FUNCTION lanekeeper.open_host_routes(p_host text) RETURNS TABLE (subscription_id int, routes int[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO lanekeeper.host_route (subscription_id, host)
    SELECT s.subscription_id, h.host
    FROM lanekeeper.subscription AS s
    CROSS JOIN unnest(ARRAY[p_host, '']) AS h (host)
    WHERE s.host_bound AND s.removed_at IS NULL AND NOT EXISTS (
        SELECT FROM lanekeeper.host_route AS r WHERE r.subscription_id = s.subscription_id AND r.host = h.host)
    ON CONFLICT DO NOTHING;
    RETURN QUERY
    SELECT r.subscription_id, array_agg(r.route ORDER BY r.host DESC) FROM lanekeeper.host_route AS r
    WHERE r.host IN (p_host, '') GROUP BY r.subscription_id;
END
$$;
