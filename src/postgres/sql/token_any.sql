-- Purpose: whether access tokens are in use at all. Revoked and expired ones count: an installation that had some wants some.
-- Rows: one.
SELECT EXISTS (SELECT FROM lanekeeper.token)
