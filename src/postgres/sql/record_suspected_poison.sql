-- Purpose: record that a suspected poison event is now delivered alone, so that a further crash is charged to its
-- lane and to no other. Rows: one.
INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
VALUES ($1, $2, ARRAY[$3::bigint], ARRAY[$4::bigint], ARRAY[$5::int])
