-- Purpose: one turn that removes the lanes of sessions of which nothing is left for $1 days.
-- Rows: $2 sessions.
SELECT r.expiring, r.dormant, r.more FROM lanekeeper.expire_sessions($1, $2) AS r
