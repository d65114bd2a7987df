-- Gives sessions the lanes that they lack: dormant ones have lost theirs, and others wait with those of new subscriptions for
-- their next event. A replay has something to deliver to them then. Every lane of a session without an event in the log
-- starts behind its newest seq: nothing is there that it could deliver. Returns how many sessions lacked lanes.
--
-- Takes the append locks, as every creator of lanes, and waits 5 s for them. What it adds is what the session's next append
-- would add. SQLSTATE: LK007 a session is being appended to.
-- Index: session's primary key, lane's unique (session_id, subscription_id), ready's primary key. Rows: the sessions given;
-- the caller gives a few hundred, whose locks are held until the commit.
CREATE OR REPLACE FUNCTION lanekeeper.restore_lanes(p_session_ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_begun  timestamptz := clock_timestamp();
    v_today  date;
    v_stream record;
    v_newest bigint[];
    v_before bigint[];
    v_done   bigint := 0;
BEGIN
    -- The stream's version is read before the locks: a subscription that is added later finds the sessions at an older one.
    FOR v_stream IN
        SELECT n.stream_id, t.lanes_version, array_agg(n.session_id ORDER BY n.session_id) AS ids
        FROM lanekeeper.session AS n
        JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
        WHERE n.session_id = ANY (p_session_ids) AND n.lanes_version <> t.lanes_version
        GROUP BY n.stream_id, t.lanes_version ORDER BY n.stream_id
    LOOP
        PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(u.session_id))
        FROM (SELECT u.session_id FROM unnest(v_stream.ids) AS u (session_id) ORDER BY u.session_id) AS u;
        v_today := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        SELECT array_agg(n.seq ORDER BY u.ord) INTO v_newest
        FROM unnest(v_stream.ids) WITH ORDINALITY AS u (session_id, ord)
        CROSS JOIN LATERAL lanekeeper.newest_event(u.session_id, v_today) AS n;
        SELECT coalesce(array_agg(l.lane_id), '{}') INTO v_before
        FROM unnest(v_stream.ids) AS u (session_id)
        CROSS JOIN LATERAL (SELECT l.lane_id FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0) AS l;
        PERFORM lanekeeper.create_lanes(v_stream.ids, v_newest, v_stream.stream_id, v_stream.lanes_version, v_today);
        -- A new lane from the earliest event would wait for events that the log has no more, and be replayed none.
        WITH added AS MATERIALIZED (
            SELECT l.lane_id, l.route, u.newest
            FROM unnest(v_stream.ids, v_newest) AS u (session_id, newest)
            CROSS JOIN LATERAL (
                SELECT l.lane_id, l.route FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0
            ) AS l
            WHERE l.lane_id <> ALL (v_before)
              AND NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = u.session_id OFFSET 0)
        ), moved AS (
            UPDATE lanekeeper.progress AS p SET cursor = a.newest, cursor_day = v_today
            FROM added AS a WHERE p.lane_id = a.lane_id AND p.version = 0 AND p.cursor < a.newest
            RETURNING p.lane_id
        )
        DELETE FROM lanekeeper.ready AS r
        USING added AS a, moved AS m
        WHERE m.lane_id = a.lane_id AND r.route = a.route AND r.priority = 0 AND r.due_at >= v_begun AND r.lane_id = a.lane_id;
        -- What a closed session has that is dormant no more: see session.lanes_version.
        UPDATE lanekeeper.session AS n SET lanes_version = -3
        WHERE n.session_id = ANY (v_stream.ids) AND n.closed_at IS NOT NULL AND n.lanes_version IN (-1, -2);
        v_done := v_done + cardinality(v_stream.ids);
    END LOOP;
    RETURN v_done;
EXCEPTION
    WHEN lock_not_available THEN
        RAISE EXCEPTION USING ERRCODE = 'LK007',
            MESSAGE = 'a session of the file is being appended to, and its transaction did not end within 5 s: nothing was restored',
            HINT = 'Try again.';
END
$$;
