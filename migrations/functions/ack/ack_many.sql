-- Acknowledges many messages at once, of some streams or of all: see ack(). Returns a row for each, in the order given. At
-- most 100,000.
-- SQLSTATE: LK006 more than that.
--
-- Rows are locked in the order of lane and seq: two calls that name the same messages do not deadlock.
-- Index: sent's primary key; lane's. Rows: one for each message and subscription that sent it.
CREATE OR REPLACE FUNCTION lanekeeper.ack_many(
    message_ids uuid[], subscription text DEFAULT NULL, streams text[] DEFAULT NULL
)
RETURNS TABLE (message_id uuid, result text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_acked uuid[];
    v_known uuid[];
    v_lanes bigint[];
BEGIN
    IF cardinality(ack_many.message_ids) > 100000 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'at most 100000 messages are acknowledged in one call: none was';
    END IF;
    WITH found AS MATERIALIZED (
        SELECT s.message_id, s.lane_id, s.seq
        FROM (SELECT DISTINCT u.message_id FROM unnest(ack_many.message_ids) AS u (message_id)) AS u
        CROSS JOIN LATERAL (
            SELECT s.message_id, s.lane_id, s.seq FROM lanekeeper.sent AS s WHERE s.message_id = u.message_id OFFSET 0
        ) AS s
        WHERE ack_many.subscription IS NULL AND ack_many.streams IS NULL OR EXISTS (
            SELECT FROM lanekeeper.lane AS l
            JOIN lanekeeper.subscription AS n ON n.subscription_id = l.subscription_id
            JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
            WHERE l.lane_id = s.lane_id AND n.name = coalesce(ack_many.subscription, n.name)
              AND (ack_many.streams IS NULL OR t.name = ANY (ack_many.streams)))
        ORDER BY s.lane_id, s.seq
    ), locked AS MATERIALIZED (
        SELECT s.message_id, s.lane_id, s.acked_at
        FROM found AS f JOIN lanekeeper.sent AS s ON s.message_id = f.message_id AND s.lane_id = f.lane_id
        ORDER BY f.lane_id, f.seq FOR UPDATE OF s
    ), acked AS (
        UPDATE lanekeeper.sent AS s SET acked_at = clock_timestamp()
        FROM locked AS k WHERE s.message_id = k.message_id AND s.lane_id = k.lane_id AND k.acked_at IS NULL
        RETURNING s.message_id, s.lane_id
    )
    SELECT (SELECT array_agg(DISTINCT a.message_id) FROM acked AS a), (SELECT array_agg(DISTINCT a.lane_id) FROM acked AS a),
           array_agg(DISTINCT k.message_id)
    INTO v_acked, v_lanes, v_known FROM locked AS k;
    IF v_lanes IS NOT NULL THEN
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
        SELECT lanekeeper.entry_route(l.lane_id, l.route), 0, clock_timestamp(), l.lane_id
        FROM unnest(v_lanes) AS u (lane_id) JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id;
        PERFORM lanekeeper.ring();
    END IF;
    RETURN QUERY
    SELECT u.message_id, CASE WHEN a.message_id IS NOT NULL THEN 'acked' WHEN k.message_id IS NOT NULL THEN 'already_acked'
                              ELSE 'unknown' END
    FROM unnest(ack_many.message_ids) WITH ORDINALITY AS u (message_id, ord)
    LEFT JOIN unnest(v_acked) AS a (message_id) ON a.message_id = u.message_id
    LEFT JOIN unnest(v_known) AS k (message_id) ON k.message_id = u.message_id
    ORDER BY u.ord;
END
$$;
