-- Purpose: end an access token by its name, and tell workers, which end its live followers. Rows: one at most. Index:
-- token_name.
WITH revoked AS (
    UPDATE lanekeeper.token AS t SET revoked_at = clock_timestamp()
    WHERE t.name = $1 AND t.revoked_at IS NULL
    RETURNING t.token_id
)
SELECT pg_notify('lanekeeper_follow', 'token ' || r.token_id) FROM revoked AS r
