-- Purpose: expire lanes that were held when their session was closed, and end drained sessions. Rows: one.
-- Index: closing_lane by session, the partial one of draining sessions.
SELECT f.lanes, f.drained, f.unfinished FROM lanekeeper.finish_closing($1) AS f
