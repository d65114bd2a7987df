-- Purpose: record that the head of a lane that outlived a worker is now delivered alone, so that
-- a further crash is charged to it and to nothing else. Rows: one.
INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
VALUES ($1, $2, ARRAY[$3::bigint], ARRAY[$4::bigint], ARRAY[$5::int])
