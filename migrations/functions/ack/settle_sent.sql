-- Within a settlement: forgets messages that the cursor passed without an acknowledgement, which were exhausted or skipped,
-- and deletes the entries of waits that ended before their time: there may be one for each message otherwise.
-- p_ords are the ords of the lanes that were written.
-- Index: ready's primary key. Rows: those that go.
CREATE OR REPLACE FUNCTION lanekeeper.settle_sent(
    p_lanes bigint[], p_cursors bigint[], p_routes int[], p_waits_ended timestamptz[], p_ords int[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM lanekeeper.forget_sent(p_lanes[i], p_cursors[i]) FROM unnest(p_ords) AS i;
    IF cardinality(p_waits_ended) > 0 THEN
        DELETE FROM lanekeeper.ready AS r
        USING unnest(p_ords) AS i
        JOIN lanekeeper.lane AS l ON l.lane_id = p_lanes[i]
        CROSS JOIN lanekeeper.priority_level AS v
        WHERE r.route = l.route AND r.priority = v.priority AND r.due_at = p_waits_ended[i] AND r.lane_id = p_lanes[i]
          -- A new wait may end in the same instant.
          AND NOT EXISTS (
              SELECT FROM lanekeeper.progress AS p WHERE p.lane_id = p_lanes[i] AND p.ack_due_at = p_waits_ended[i]);
    END IF;
END
$$;
