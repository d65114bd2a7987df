-- Purpose: one turn of what applies left to finish (I13). Rows: $1 sessions.
SELECT f.unfinished, f.more, f.sessions_scanned, f.lanes_woken FROM lanekeeper.finish_changes($1) AS f
