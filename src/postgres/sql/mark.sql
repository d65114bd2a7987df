-- Purpose: move the tokens of lanes with long deliveries out of the claims' way. Keeps I9, I13.
-- Index: none, tokens are found by their place. Rows: one per lane given.
SELECT lane_id, token, token_id FROM lanekeeper.mark($1, $2, $3, $4, $5, $6)
