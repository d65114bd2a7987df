-- Purpose: the settings of a subscription that sends over A2A. Index: subscription_by_name. Rows: at most one.
SELECT s.settings
FROM lanekeeper.subscription AS s
WHERE s.name = $1 AND s.removed_at IS NULL AND s.adapter = 'agent' AND s.settings ->> 'protocol' = 'a2a'
