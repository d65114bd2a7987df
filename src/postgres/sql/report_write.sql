-- Purpose: what a worker says of the subscriptions, written where it differs from what the worker said before; what it says
-- nothing of any more goes. Where nothing differs, no row is touched. A worker without a row of its own says nothing: its
-- reports would stay for ever.
-- Index: the table's primary key. Rows: at most one in and one out per subscription.
WITH given AS (
    SELECT g.subscription_id, g.version, g.state, g.reason
    FROM unnest($2::int[], $3::bigint[], $4::text[], $5::text[]) AS g (subscription_id, version, state, reason)
    WHERE EXISTS (SELECT FROM lanekeeper.worker AS w WHERE w.worker_id = $1)
), gone AS (
    DELETE FROM lanekeeper.subscription_report AS r WHERE r.worker_id = $1 AND r.subscription_id <> ALL ($2)
)
INSERT INTO lanekeeper.subscription_report AS r (worker_id, subscription_id, version, state, reason)
SELECT $1, g.subscription_id, g.version, g.state, g.reason
FROM given AS g
WHERE NOT EXISTS (
    SELECT FROM lanekeeper.subscription_report AS o
    WHERE o.worker_id = $1 AND o.subscription_id = g.subscription_id
      AND o.version = g.version AND o.state = g.state AND o.reason IS NOT DISTINCT FROM g.reason)
ON CONFLICT (worker_id, subscription_id) DO UPDATE
SET version = excluded.version, state = excluded.state, reason = excluded.reason,
    since = CASE WHEN r.state = excluded.state THEN r.since ELSE excluded.since END
