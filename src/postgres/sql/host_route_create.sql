-- Purpose: the route of a host-bound subscription's lanes whose host is not known. Index: host_route's unique key. Rows: one.
INSERT INTO lanekeeper.host_route (subscription_id, host)
SELECT s.subscription_id, '' FROM lanekeeper.subscription AS s WHERE s.subscription_id = $1 AND s.host_bound
ON CONFLICT DO NOTHING
