-- Purpose: begin to restore an archived day. Index: as lanekeeper.begin_restore. Rows: one.
SELECT b.day, b.events FROM lanekeeper.begin_restore($1, make_interval(secs => $2)) AS b
