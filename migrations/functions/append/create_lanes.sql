-- Adds the lanes that sessions lack since subscriptions were added to their stream, and writes the stream's
-- lanes_version to the sessions. The caller holds their append locks.
--
-- `newest` has each session's newest seq, 0 where it has none. A lane starts behind it, or before the first event where
-- its subscription starts at the earliest: then it gets a ready entry here (I13). In a closed session every lane starts
-- behind the newest event, and lanes_version stays. A conflict is possible only where the
-- caller's snapshot is older than the lock; Postgres raises 40001 for the session's row then. The ids are drawn first, so
-- that nothing is joined with what was inserted.
CREATE OR REPLACE FUNCTION lanekeeper.create_lanes(
    session_ids bigint[], newest bigint[], p_stream_id int, p_lanes_version bigint, today date
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH lacking AS MATERIALIZED (
        SELECT u.session_id, u.newest, s.subscription_id, s.plain, s.host_bound,
               s.start_from = 'latest' OR n.closed_at IS NOT NULL AS at_end
        FROM unnest(session_ids, newest) AS u (session_id, newest)
        CROSS JOIN LATERAL (
            SELECT n.closed_at FROM lanekeeper.session AS n WHERE n.session_id = u.session_id OFFSET 0
        ) AS n
        CROSS JOIN LATERAL (
            SELECT s.subscription_id, s.start_from, s.events IS NULL AS plain, s.host_bound FROM lanekeeper.subscription AS s
            WHERE s.stream_id = p_stream_id AND s.removed_at IS NULL
              AND NOT EXISTS (
                  SELECT FROM lanekeeper.lane AS l
                  -- + 0: the index of the subscription's lanes is no way to one of them. A plan that was
                  -- made while there were none took it, and read all lanes at each new session.
                  WHERE l.session_id = u.session_id AND l.subscription_id + 0 = s.subscription_id)
        ) AS s
    ), wanted AS MATERIALIZED (
        SELECT w.session_id, w.newest, w.subscription_id, w.at_end, w.plain,
               nextval('lanekeeper.lane_lane_id_seq') AS lane_id,
               CASE WHEN w.host_bound THEN lanekeeper.first_route(w.subscription_id, w.session_id)
                    ELSE w.subscription_id END AS route
        FROM lacking AS w
    ), added AS (
        INSERT INTO lanekeeper.lane (lane_id, session_id, subscription_id, route, plain) OVERRIDING SYSTEM VALUE
        SELECT w.lane_id, w.session_id, w.subscription_id, w.route, w.plain FROM wanted AS w
        -- Under the append lock there is a conflict only where the snapshot is older than the lock: that is
        -- raised as a serialization failure.
        ON CONFLICT DO NOTHING
    ), started AS (
        INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day)
        SELECT w.lane_id, 0,
               CASE WHEN w.at_end THEN w.newest ELSE 0 END,
               CASE WHEN w.at_end OR w.newest = 0 THEN today ELSE '2000-01-01'::date END
        FROM wanted AS w
    )
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT w.route, 0, clock_timestamp(), w.lane_id
    FROM wanted AS w
    WHERE NOT w.at_end AND w.newest > 0;

    UPDATE lanekeeper.session AS s SET lanes_version = p_lanes_version
    WHERE s.session_id = ANY (session_ids) AND s.lanes_version <> p_lanes_version AND s.closed_at IS NULL;
END
$$;
