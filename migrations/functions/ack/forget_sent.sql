-- Forgets messages of a lane that the cursor passes without an acknowledgement: exhausted, skipped or expired ones. A later
-- acknowledgement of such a message is unknown.
--
-- A consumer's transaction that acknowledges one at this moment may stay open. It is not waited for: its row stays, and
-- goes with the lane's next call, unless that transaction commits; then it says acknowledged, late and without effect.
-- Index: sent_of_lane. Rows: those that go, at most the lane's window.
CREATE OR REPLACE FUNCTION lanekeeper.forget_sent(p_lane_id bigint, p_seq bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    DELETE FROM lanekeeper.sent AS s
    USING (
        SELECT x.message_id FROM lanekeeper.sent AS x
        WHERE x.lane_id = p_lane_id AND x.seq <= p_seq AND x.acked_at IS NULL
        ORDER BY x.seq FOR UPDATE SKIP LOCKED
    ) AS x
    WHERE s.message_id = x.message_id AND s.lane_id = p_lane_id;
END
$$;
