-- Purpose: enter the messages of a batch before they are sent; return the seqs of those that are acknowledged by now. A
-- consumer's open transaction that acknowledges one is not waited for, as ON CONFLICT alone would. Index: sent's primary
-- key. Rows: those of a batch, 50 at most.
WITH given AS MATERIALIZED (
    SELECT u.message_id, u.seq FROM unnest($1::uuid[], $3::bigint[]) AS u (message_id, seq)
), entered AS (
    INSERT INTO lanekeeper.sent (message_id, lane_id, seq)
    SELECT g.message_id, $2, g.seq FROM given AS g
    WHERE NOT EXISTS (SELECT FROM lanekeeper.sent AS s WHERE s.message_id = g.message_id AND s.lane_id = $2)
    ON CONFLICT DO NOTHING
)
SELECT s.seq FROM given AS g
JOIN lanekeeper.sent AS s ON s.message_id = g.message_id AND s.lane_id = $2
WHERE s.acked_at IS NOT NULL
