-- Purpose: give back lane locks, once each, and forget finished claims. Rows: one per lane given.
WITH forgotten AS (
    DELETE FROM lanekeeper.claim AS c WHERE c.connection_id = $2 AND c.claim_id = ANY ($3)
)
SELECT pg_advisory_unlock(lanekeeper.lane_lock(u.lane_id)) FROM unnest($1::bigint[]) AS u (lane_id)
