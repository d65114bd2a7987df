-- Purpose: where the fold of a session's events begins, and how far it can go. Index: see the function. Rows: one.
SELECT f.newest_seq, f.seq, f.day, f.state FROM lanekeeper.find_snapshot($1, $2, $3, $4, $5) AS f
