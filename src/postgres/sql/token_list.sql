-- Purpose: the access tokens, without anything secret. Rows: all, a few per installation.
SELECT t.token_id, t.name, t.scopes, t.streams, t.sessions, t.rate, t.created_at, t.expires_at, t.revoked_at
FROM lanekeeper.token AS t ORDER BY t.token_id LIMIT 10000
