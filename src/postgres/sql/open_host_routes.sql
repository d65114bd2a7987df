-- Purpose: the routes that a worker with this host label scans. Index: see the function. Rows: one for each subscription
-- that is host-bound.
SELECT r.subscription_id, r.routes FROM lanekeeper.open_host_routes($1) AS r
