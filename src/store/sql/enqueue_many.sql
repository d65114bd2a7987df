-- Purpose: append the events of one JSON array, in its order, all or none.
-- Bound: the array; the caller limits it.
SELECT count(*) AS events, count(*) FILTER (WHERE e.duplicate) AS duplicates
FROM lanekeeper.enqueue_many($1, $2::jsonb) AS e
