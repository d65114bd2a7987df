-- Purpose: give back the locks of lanes that were let go and forget finished claims; then take the locks of due lanes
-- and read their progress. Keeps I2, I9.
-- Index: ready's primary key (route, priority, due_at, id). Rows: one, of arrays: at most $7 lanes.
SELECT lane_ids, routes, priorities, ready_ctids, ready_ids, session_ids, sessions, days,
       known, versions, cursors, cursor_days, progress_ctids, scan_starts, scan_start_ids, due_in_ms,
       past_ords, attempts, crashes, waits_ms, parked, requeued_after, sents, ack_due_at, ack_waits_ms
FROM lanekeeper.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
