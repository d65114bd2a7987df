-- Purpose: take the locks of due lanes and read their progress. Keeps I2, I9.
-- Index: ready's primary key (route, priority, due_at, id). Rows: at most $6 lanes and one per route.
SELECT lane_id, route, priority, due_at, token_id, session_id, session, version, cursor, cursor_day,
       attempts, crashes, retry_in_ms, parked
FROM lanekeeper.claim($1, $2, $3, $4, $5, $6, $7)
