-- Purpose: how many workers share what is limited, and how many of them started before this one. Draining
-- ones count: they still deliver. Rows: one. Index: none needed, a row per worker.
SELECT count(DISTINCT w.worker_id) AS replicas,
       count(DISTINCT w.worker_id) FILTER (WHERE w.worker_id < $1) AS rank
FROM lanekeeper.worker AS w
WHERE w.beat_at > clock_timestamp() - $2::bigint * interval '1 ms'
