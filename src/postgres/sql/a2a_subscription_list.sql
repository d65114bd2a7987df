-- Purpose: the subscriptions that send over A2A, with the adapter's settings. Index: none, the table is small; the caller
-- asks once in two seconds at most. Rows: those subscriptions.
SELECT s.subscription_id, s.name, s.settings
FROM lanekeeper.subscription AS s
WHERE s.removed_at IS NULL AND s.adapter = 'agent' AND s.settings ->> 'protocol' = 'a2a'
