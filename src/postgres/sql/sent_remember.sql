-- Purpose: remember an acknowledgement that came with the answer, ahead of an earlier one. A consumer's open transaction that
-- acknowledges the message is not waited for: if it commits, it has remembered that; if not, the message waits like the
-- others. Index: sent's primary key. Rows: one.
UPDATE lanekeeper.sent AS s SET acked_at = coalesce(s.acked_at, clock_timestamp())
WHERE s.ctid = ANY (ARRAY(
    SELECT o.ctid FROM lanekeeper.sent AS o WHERE o.message_id = $1 AND o.lane_id = $2 FOR NO KEY UPDATE SKIP LOCKED
))
