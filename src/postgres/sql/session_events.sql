-- Purpose: a page of a session's events, the kept ones too. Index: see the function. Rows: at most $5.
SELECT e.seq, e.event_type, e.payload FROM lanekeeper.session_events($1, $2, $3, $4, $5, $6) AS e ORDER BY e.seq
