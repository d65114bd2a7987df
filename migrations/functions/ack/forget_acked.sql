-- Forgets up to p_limit messages that were acknowledged more than a day ago: a repeated acknowledgement is unknown from then
-- on; and up to p_limit requests whose answers were waited for a day ago. Returns how many went of the more numerous kind.
--
-- One process at a time; for the others there is nothing to do. The caller calls again while the limit was reached.
-- Indexes: sent_by_age, awaited_response_by_age. Rows: at most p_limit of each.
CREATE OR REPLACE FUNCTION lanekeeper.forget_acked(p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_count   bigint;
    v_awaited bigint;
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
    DELETE FROM lanekeeper.awaited_response AS a
    USING (
        SELECT x.request_id, x.stream_id FROM lanekeeper.awaited_response AS x
        WHERE x.asked_at < clock_timestamp() - interval '1 day' ORDER BY x.asked_at LIMIT p_limit
    ) AS x
    WHERE a.request_id = x.request_id AND a.stream_id = x.stream_id;
    GET DIAGNOSTICS v_awaited = ROW_COUNT;
    RETURN greatest(v_count, v_awaited);
END
$$;
