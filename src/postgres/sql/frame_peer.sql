-- Purpose: the subscriptions that send to a peer, by the name of the access token that it was given; NULL: to any.
-- Rows: some, 100 at most, of a table with tens.
SELECT s.name FROM lanekeeper.subscription AS s
WHERE s.adapter = 'agent' AND s.removed_at IS NULL AND ($1::text IS NULL OR s.settings ->> 'peer' = $1)
ORDER BY s.name LIMIT 100
