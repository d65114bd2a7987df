-- Purpose: what the workers that live say of the subscriptions that are in force. $1: a worker without a heartbeat for so
-- many milliseconds does not count. `current`: the worker has the subscription's newest version.
-- Index: none needed, a row per worker and subscription. Rows: at most $2.
SELECT r.subscription_id, w.worker_id, w.host, r.version, r.version = s.version AS current, r.state, r.reason, r.since
FROM lanekeeper.subscription_report AS r
JOIN lanekeeper.worker AS w ON w.worker_id = r.worker_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = r.subscription_id
WHERE s.removed_at IS NULL AND w.beat_at > clock_timestamp() - $1::bigint * interval '1 ms'
ORDER BY r.subscription_id, w.worker_id LIMIT $2
