-- Purpose: move the ready entries of lanes with long deliveries out of the way of claims. Keeps I9, I13.
-- Index: none, entries are found by ctid. Rows: one per lane given.
SELECT lane_id, ready_ctid, ready_id FROM lanekeeper.record_in_flight($1, $2, $3, $4, $5, $6)
