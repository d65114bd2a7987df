-- Forgets up to p_limit messages that were acknowledged more than a day ago: a repeated acknowledgement is unknown from then
-- on. Returns how many went.
--
-- One process at a time; for the others there is nothing to do. The caller calls again while the limit was reached.
-- Index: sent_by_age. Rows: at most p_limit.
CREATE OR REPLACE FUNCTION lanekeeper.forget_acked(p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_count bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(2)) THEN
        RETURN 0;
    END IF;
    DELETE FROM lanekeeper.sent AS s
    USING (
        SELECT x.message_id, x.lane_id FROM lanekeeper.sent AS x
        WHERE x.acked_at < clock_timestamp() - interval '1 day' ORDER BY x.acked_at LIMIT p_limit
    ) AS x
    WHERE s.message_id = x.message_id AND s.lane_id = x.lane_id
      -- One that was acknowledged ahead of an earlier message is needed until the cursor passes it.
      AND NOT EXISTS (SELECT FROM lanekeeper.progress AS p WHERE p.lane_id = s.lane_id AND p.cursor < s.seq);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
