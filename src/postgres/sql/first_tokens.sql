-- Purpose: what walks that start at their bounds would miss. Keeps I9, I13.
-- Index: ready's primary key, from each floor on. Rows: one, of arrays.
SELECT due_at, token_ids, lane_ids, asked_at, oldest_open, own_transaction, server
FROM lanekeeper.first_tokens($1, $2)
