-- Purpose: move the tokens of lanes with long deliveries out of the claims' way. Keeps I9, I13.
-- Index: ready's primary key. Rows: one per lane given.
SELECT lane_id, due_at, token_id FROM lanekeeper.mark($1, $2, $3, $4, $5, $6)
