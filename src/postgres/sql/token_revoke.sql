-- Purpose: end an access token by its name. Rows: one at most. Index: token_name.
UPDATE lanekeeper.token AS t SET revoked_at = clock_timestamp()
WHERE t.name = $1 AND t.revoked_at IS NULL
