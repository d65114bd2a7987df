-- Purpose: enter a message before it is sent, again where it is sent again. Index: sent's primary key. Rows: one.
INSERT INTO lanekeeper.sent AS s (message_id, lane_id, seq) VALUES ($1, $2, $3)
ON CONFLICT (message_id, lane_id) DO UPDATE SET sent_at = excluded.sent_at
RETURNING s.acked_at IS NOT NULL AS acked
