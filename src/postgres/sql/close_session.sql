-- Purpose: close a session (E6). Index: see the function. Rows: one; written are those of the session's lanes.
SELECT lanekeeper.close_session($1, $2, $3, $4) AS expired
