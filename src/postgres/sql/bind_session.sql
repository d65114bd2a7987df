-- Purpose: say on which host a session lives (E5). Index: see the function. Rows: one.
SELECT lanekeeper.bind_session($1, $2, $3) AS changed
