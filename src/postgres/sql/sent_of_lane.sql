-- Purpose: what a lane has sent behind its cursor. Index: sent_of_lane. Rows: those of its window, 50 at most.
SELECT s.seq, s.acked_at IS NOT NULL AS acked FROM lanekeeper.sent AS s
WHERE s.lane_id = $1 AND s.seq > $2 ORDER BY s.seq
