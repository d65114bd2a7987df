-- Purpose: remember an acknowledgement that came with the answer, ahead of an earlier one. Index: sent's primary key.
-- Rows: one.
UPDATE lanekeeper.sent AS s SET acked_at = coalesce(s.acked_at, clock_timestamp())
WHERE s.message_id = $1 AND s.lane_id = $2
