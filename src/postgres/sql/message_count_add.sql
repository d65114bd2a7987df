-- Purpose: add what a worker counted to the figures of its subscriptions. In one order, so that two workers do not
-- deadlock. Index: message_count's primary key. Rows: one per subscription.
INSERT INTO lanekeeper.message_count AS c (subscription_id, sent, acked, retried, failed, expired, dropped)
SELECT g.subscription_id, g.sent, g.acked, g.retried, g.failed, g.expired, g.dropped
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
     AS g (subscription_id, sent, acked, retried, failed, expired, dropped)
ORDER BY g.subscription_id
ON CONFLICT (subscription_id) DO UPDATE
SET sent = c.sent + excluded.sent, acked = c.acked + excluded.acked, retried = c.retried + excluded.retried,
    failed = c.failed + excluded.failed, expired = c.expired + excluded.expired, dropped = c.dropped + excluded.dropped
