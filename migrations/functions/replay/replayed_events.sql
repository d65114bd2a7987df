-- The first p_most events of a range that a lane delivers again: behind p_after, up to p_to. What the subscription's filter
-- leaves out, what was cancelled, and what an interrupt superseded is not among them. A payload over p_inline_bytes stays
-- behind (I11). A function, so that a connection plans it once.
-- Index: event's and outcome's primary keys, outcome_range; partitions before p_day are pruned at run time. Rows: p_most, and
-- those that are left out among them.
CREATE OR REPLACE FUNCTION lanekeeper.replayed_events(
    p_lane_id bigint, p_subscription_id int, p_session_id bigint, p_after bigint, p_to bigint, p_day date, p_most int,
    p_inline_bytes int
) RETURNS TABLE (
    seq bigint, day date, message_id uuid, event_type text, created_at timestamptz, size int, payload text, headers text
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_types text[];
BEGIN
    SELECT s.events INTO v_types FROM lanekeeper.subscription AS s WHERE s.subscription_id = p_subscription_id;
    RETURN QUERY
    SELECT e.seq, e.day, e.message_id, e.event_type, e.created_at, e.size,
           CASE WHEN e.size <= p_inline_bytes THEN e.payload END, e.headers::text
    FROM lanekeeper.past_event AS e
    WHERE e.session_id = p_session_id AND e.seq > p_after AND e.seq <= p_to AND e.day >= p_day
      AND (v_types IS NULL OR e.event_type = ANY (v_types)) AND NOT lanekeeper.is_cancelled(e.headers)
      AND NOT EXISTS (
          SELECT FROM lanekeeper.outcome AS o
          WHERE o.lane_id = p_lane_id AND o.seq = e.seq AND o.kind = 'superseded')
      AND coalesce((
          SELECT o.kind <> 'superseded' OR o.to_seq < e.seq FROM lanekeeper.outcome AS o
          WHERE o.lane_id = p_lane_id AND o.seq <= e.seq AND o.to_seq IS NOT NULL
          ORDER BY o.seq DESC LIMIT 1), true)
    ORDER BY e.seq LIMIT p_most;
END
$$;
