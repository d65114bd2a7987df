-- Purpose: give back lane locks, once each. Rows: one per lane given.
SELECT pg_advisory_unlock(lanekeeper.lane_lock(u.lane_id)) FROM unnest($1::bigint[]) AS u (lane_id)
