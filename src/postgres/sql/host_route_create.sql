-- Purpose: the routes that every host-bound subscription has: of lanes whose host is not known, and of those whose host has
-- no route yet. Index: host_route's unique key. Rows: two.
INSERT INTO lanekeeper.host_route (subscription_id, host)
SELECT s.subscription_id, h.host
FROM lanekeeper.subscription AS s CROSS JOIN unnest('{"",/}'::text[]) AS h (host)
WHERE s.subscription_id = $1 AND s.host_bound
ON CONFLICT DO NOTHING
