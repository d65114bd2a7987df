-- Purpose: the backstop scan: what scans that begin at their scan starts would miss. Keeps I9, I13.
-- Index: ready's primary key, from each low-water mark on. Rows: one, of arrays.
SELECT due_at, ready_ids, lane_ids, asked_at, oldest_open, own_transaction, server
FROM lanekeeper.first_ready_entries($1, $2)
