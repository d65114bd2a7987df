-- Purpose: forget a connection that let all its lanes go. Rows: one, and its claims.
WITH claims AS (DELETE FROM lanekeeper.claim AS c WHERE c.connection_id = $1)
DELETE FROM lanekeeper.lane_connection AS c WHERE c.connection_id = $1
