-- Purpose: tell of a message that was typed (E4). Index: see the function. Rows: one.
SELECT lanekeeper.announce_input($1, $2, $3::jsonb)
