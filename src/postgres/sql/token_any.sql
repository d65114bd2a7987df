-- Purpose: whether access tokens are in use at all. Revoked and expired ones count: who had some wants some.
-- Rows: one.
SELECT EXISTS (SELECT FROM lanekeeper.token)
