-- Purpose: what is known of a message for a terminal and of its agent (E4). Index: see the function. Rows: one.
SELECT l.stage, l.is_prompted, l.is_live, l.native_session_id, l.cwd FROM lanekeeper.look_at_terminal($1, $2, $3) AS l
