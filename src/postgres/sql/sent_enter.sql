-- Purpose: enter a message before it is sent; where it is sent again, say whether it is acknowledged by now. A consumer's
-- open transaction that acknowledges it is not waited for, as ON CONFLICT alone would. Index: sent's primary key. Rows: one.
WITH entered AS (
    INSERT INTO lanekeeper.sent (message_id, lane_id, seq)
    SELECT $1, $2, $3
    WHERE NOT EXISTS (SELECT FROM lanekeeper.sent AS s WHERE s.message_id = $1 AND s.lane_id = $2)
    ON CONFLICT DO NOTHING
)
SELECT EXISTS (
    SELECT FROM lanekeeper.sent AS s WHERE s.message_id = $1 AND s.lane_id = $2 AND s.acked_at IS NOT NULL
) AS acked
