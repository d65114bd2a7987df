-- Purpose: give back lane locks, once each, and forget finished claims. Rows: one.
-- Index: claim's primary key, a look-up of the whole key for each. With claim_id = ANY in the DELETE itself the
-- planner, once it knows how few claims there are, reads all that the connection ever had, dead ones too.
WITH forgotten AS (
    DELETE FROM lanekeeper.claim WHERE ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM unnest($3::bigint[]) AS f (claim_id)
        CROSS JOIN LATERAL (
            SELECT c.ctid FROM lanekeeper.claim AS c
            WHERE c.connection_id = $2 AND c.claim_id = f.claim_id OFFSET 0
        ) AS c
    ))
)
SELECT bool_and(pg_advisory_unlock(lanekeeper.lane_lock(u.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))) FROM unnest($1::bigint[]) AS u (lane_id)
