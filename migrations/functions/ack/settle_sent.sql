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
        -- OFFSET 0 leaves no other plan than look-ups by the key: a join of the tables once read all entries, 280 ms each time.
        DELETE FROM lanekeeper.ready AS r
        USING unnest(p_ords) AS i
        CROSS JOIN LATERAL (
            SELECT l.route FROM lanekeeper.lane AS l WHERE l.lane_id = p_lanes[i] OFFSET 0
        ) AS l
        CROSS JOIN lanekeeper.priority_level AS v
        CROSS JOIN LATERAL (
            SELECT e.ctid FROM lanekeeper.ready AS e
            WHERE e.route = l.route AND e.priority = v.priority AND e.due_at = p_waits_ended[i] AND e.lane_id = p_lanes[i] OFFSET 0
        ) AS e
        WHERE r.ctid = e.ctid
          -- A new wait may end in the same instant.
          AND NOT EXISTS (
              SELECT FROM lanekeeper.progress AS p WHERE p.lane_id = p_lanes[i] AND p.ack_due_at = p_waits_ended[i]);
    END IF;
END
$$;
