-- Purpose: pass events of lanes that were held when their session was closed or interrupted, and end drained sessions.
-- Index: closing_lane by session, the partial one of draining sessions. Rows: one.
SELECT f.lanes, f.drained, f.unfinished FROM lanekeeper.finish_closing($1, $2) AS f
