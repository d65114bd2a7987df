-- Purpose: lanes of one subscription for the next $3 sessions after session $2. Rows: one out.
SELECT lanekeeper.add_lanes($1, $2, $3) AS last_session
