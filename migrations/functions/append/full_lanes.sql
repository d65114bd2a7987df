-- The lanes of a session that p_adding more events, if their subscriptions receive them all, would bring beyond
-- max_pending: see pending_events(). retry_after_ms: how long at the least until one of them can be delivered; NULL where
-- nothing will be before an operator acts. The caller has the append lock, so nothing is added meanwhile; what is
-- delivered meanwhile makes the figures too high, never too low.
--
-- What a close or an interrupt has taken out and the lane's holder has not passed yet is no longer counted.
-- Lanes of subscriptions that do not refuse, and of those that were removed, are left out. A distance that fits is fine
-- whatever is in it: only beyond it the log is read.
-- The planner is pinned by the append functions that call it: each setting costs a call a microsecond.
-- Index: lane's unique (session_id, subscription_id), progress' and closing_lane's primary keys. Rows: the session's lanes.
CREATE OR REPLACE FUNCTION lanekeeper.full_lanes(p_session_id bigint, p_newest bigint, p_adding bigint)
RETURNS TABLE (subscription text, types text[], max_pending int, pending bigint, retry_after_ms bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT f.name, f.events, f.max_pending, f.pending, f.retry_after_ms
    FROM (
        SELECT s.name, s.events, s.max_pending,
               lanekeeper.pending_events(p_session_id, p.cursor, p.cursor_day, p_newest, s.events, s.max_pending) AS pending,
               CASE WHEN s.paused_at IS NULL AND p.parked_at IS NULL THEN greatest(0, (extract(
                   epoch FROM coalesce(p.retry_at, p.ack_due_at, clock_timestamp()) - clock_timestamp()) * 1000)::numeric)::bigint
               END AS retry_after_ms
        FROM lanekeeper.lane AS l
        CROSS JOIN LATERAL (
            SELECT s.name, s.events, s.max_pending, s.paused_at FROM lanekeeper.subscription AS s
            WHERE s.subscription_id = l.subscription_id AND s.removed_at IS NULL AND s.max_pending IS NOT NULL
              AND s.on_full = 'refuse' OFFSET 0
        ) AS s
        CROSS JOIN LATERAL (
            SELECT greatest(p.cursor, c.seq) AS cursor, greatest(p.cursor_day, c.day) AS cursor_day,
                   p.parked_at, p.retry_at, p.ack_due_at
            FROM lanekeeper.progress AS p
            LEFT JOIN LATERAL (
                SELECT c.seq, c.day FROM lanekeeper.closing_lane AS c
                WHERE c.lane_id = l.lane_id AND c.finished_at IS NULL AND c.kind <> 'cancelled'
                ORDER BY c.seq DESC LIMIT 1
            ) AS c ON c.seq > p.cursor
            WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE l.session_id = p_session_id AND p_newest - p.cursor + p_adding > s.max_pending
        -- Counted once.
        OFFSET 0
    ) AS f
    WHERE f.pending + p_adding > f.max_pending;
END
$$;
