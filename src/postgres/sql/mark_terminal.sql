-- Purpose: put on record how far the typing of a message has come (E4). Index: see the function. Rows: one.
SELECT lanekeeper.mark_terminal($1, $2, $3, $4)
