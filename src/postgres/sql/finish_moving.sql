-- Purpose: move lanes to the routes of their sessions' hosts (I2, I13). Index: see the function. Rows: one.
SELECT moved, more FROM lanekeeper.finish_moving($1)
