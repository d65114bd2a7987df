-- Purpose: end a subscription; its lanes stay for the record. Rows: one.
-- Index: subscription's primary key.
UPDATE lanekeeper.subscription AS s SET removed_at = now(), version = s.version + 1
WHERE s.subscription_id = $1
RETURNING s.subscription_id, s.version
