-- Purpose: append the events of one JSON array, in its order, all or none.
-- Rows: one; it writes one for each of the array, which the caller limits.
SELECT count(*) AS events, count(*) FILTER (WHERE e.duplicate) AS duplicates
FROM lanekeeper.enqueue_many($1, $2::jsonb) AS e
