-- Purpose: judge a token that came with a request. Rows: one at most. Index: token's primary key.
SELECT t.token_id, t.name, t.hash, t.scopes, t.streams, t.sessions, t.rate,
    coalesce(t.expires_at <= clock_timestamp(), false) AS has_expired,
    (extract(epoch FROM t.expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms
FROM lanekeeper.token AS t
WHERE t.token_id = $1 AND t.revoked_at IS NULL
