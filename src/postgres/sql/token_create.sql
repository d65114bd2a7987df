-- Purpose: a new access token. Rows: one.
INSERT INTO lanekeeper.token (name, hash, scopes, streams, rate, expires_at, sessions)
VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::bigint * interval '1 s', $7)
RETURNING token_id, expires_at
