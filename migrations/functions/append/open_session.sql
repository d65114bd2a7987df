-- Finds or creates the session, takes its append lock and adds the lanes that it lacks. For the cases that an append
-- seldom meets: a new session, and a session whose stream got a subscription since its last append.
--
-- A concurrent creator of the same session is waited for. In REPEATABLE READ and SERIALIZABLE raises 40001 where the
-- snapshot is older than the newest append.
CREATE OR REPLACE FUNCTION lanekeeper.open_session(IN p_stream text, IN p_session text, OUT session_id bigint, OUT locked_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id     int;
    v_stream_lanes  bigint;
    v_session_lanes bigint;
    v_created       boolean := false;
    v_newest        bigint := 0;
    v_today         date;
BEGIN
    SELECT t.stream_id, t.lanes_version INTO v_stream_id, v_stream_lanes
    FROM lanekeeper.stream AS t WHERE t.name = p_stream;
    SELECT s.session_id, s.lanes_version INTO session_id, v_session_lanes
    FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = p_session;
    IF NOT FOUND THEN
        -- Waits for a concurrent creator of the same session.
        INSERT INTO lanekeeper.session AS s (stream_id, name, lanes_version, newest_day)
        VALUES (v_stream_id, p_session, v_stream_lanes, (clock_timestamp() AT TIME ZONE 'UTC')::date)
        ON CONFLICT DO NOTHING
        RETURNING s.session_id INTO session_id;
        v_created := FOUND;
        IF NOT v_created THEN
            SELECT s.session_id, s.lanes_version INTO session_id, v_session_lanes
            FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = p_session;
        END IF;
    END IF;

    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)));
    -- From here on, in READ COMMITTED, every statement sees all earlier appends of the session.
    locked_at := clock_timestamp();
    IF v_created OR v_session_lanes <> v_stream_lanes THEN
        v_today := (locked_at AT TIME ZONE 'UTC')::date;
        IF NOT v_created THEN
            SELECT n.seq INTO v_newest FROM lanekeeper.newest_event(session_id, v_today) AS n;
            IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
                PERFORM lanekeeper.refuse_stale_snapshot(session_id, n.seq + 1, n.day, v_today)
                FROM lanekeeper.newest_event(session_id, v_today) AS n;
            END IF;
        END IF;
        PERFORM lanekeeper.create_lanes(ARRAY[session_id], ARRAY[v_newest], v_stream_id, v_stream_lanes, v_today);
    END IF;
END
$$;
