-- Closes a session, in the caller's transaction: from its commit on, appends are refused with LK002, and what no lane has
-- delivered gets the outcome `expired`, one row for each lane, however much it is. Returns for how many events that is,
-- as of the lane that was furthest behind; 0 where the session is closed already. Dead letters stay; requeued ones wait
-- for an operator again.
--
-- With `drain`, what is there is delivered first; appends are refused from the commit on all the same. A second call
-- without `drain` expires what is left then. reopen_session() undoes a close for what comes.
--
-- SQLSTATEs, each with nothing changed: LK006 invalid argument; LK007 another transaction appends to the session and did
-- not end within 5 s; LK010 no such session; 40001 in REPEATABLE READ and SERIALIZABLE, where another transaction appended
-- to the session, or closed it, after the snapshot.
--
-- It has the session's append lock until the transaction ends, so no append is under way (I1), and writes the closing seq
-- to the session's row, by which appends see it: see enqueue(). Lanes that nobody holds are expired here, under their
-- locks. One that is held is not waited for, since a delivery may take minutes, and its progress is not touched, since
-- this transaction may take as long, and the holder's settlements would wait: it goes to closing_lane, for
-- finish_closing(). The notification has workers do that at once, and cancel the running delivery. The connection that
-- holds a lane may itself be the caller, in a handler's transaction: session locks are re-entrant, so all lanes are left
-- to finish_closing() there.
-- Index: session's unique name, lane's (session_id, subscription_id), and those of expire_lane(). Rows: those of the
-- session's lanes, whatever their backlog.
CREATE OR REPLACE FUNCTION lanekeeper.close_session(
    stream text, session text, reason text DEFAULT NULL, drain boolean DEFAULT false
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session record;
    v_newest  record;
    v_lane    record;
    v_done    record;
    v_today   date;
    v_held    boolean := false;
    -- As outcomes tell it.
    v_reason  text;
    -- Of the lane that is furthest behind.
    v_most    bigint := 0;
    v_lanes   jsonb := '[]';
BEGIN
    IF octet_length(close_session.reason) > 2000 OR close_session.drain IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'a reason takes at most 2000 bytes, and drain must not be null: nothing was changed';
    END IF;
    SELECT f.session_id INTO v_session FROM lanekeeper.lock_session(close_session.stream, close_session.session) AS f;

    -- In a statement of its own, after the lock.
    v_today := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    SELECT n.seq, n.day INTO v_newest FROM lanekeeper.newest_event(v_session.session_id, v_today) AS n;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM lanekeeper.refuse_stale_snapshot(v_session.session_id, v_newest.seq + 1, v_newest.day, v_today);
    END IF;
    SELECT s.session_id, s.closed_at, s.draining, s.close_reason INTO v_session
    FROM lanekeeper.session AS s WHERE s.session_id = v_session.session_id;
    IF v_session.closed_at IS NOT NULL AND (close_session.drain OR NOT v_session.draining) THEN
        RETURN 0;
    END IF;
    v_reason := coalesce(close_session.reason, v_session.close_reason, 'the session was closed');
    UPDATE lanekeeper.session AS s
    SET closed_at = coalesce(s.closed_at, clock_timestamp()), closed_seq = v_newest.seq,
        close_reason = coalesce(close_session.reason, s.close_reason), draining = close_session.drain,
        lanes_version = CASE WHEN s.lanes_version < 0 THEN s.lanes_version ELSE -3 END
    WHERE s.session_id = v_session.session_id;
    INSERT INTO lanekeeper.closed_session AS c (session_id) VALUES (v_session.session_id) ON CONFLICT DO NOTHING;
    INSERT INTO lanekeeper.operation (action, session_id, seq, reason)
    VALUES (CASE WHEN close_session.drain THEN 'drain' ELSE 'close' END, v_session.session_id, v_newest.seq,
            close_session.reason);

    PERFORM lanekeeper.wake_followers(t.stream_id, ARRAY[v_session.session_id])
    FROM lanekeeper.stream AS t WHERE t.name = close_session.stream AND t.followed;

    IF NOT close_session.drain THEN
        v_held := EXISTS (SELECT FROM lanekeeper.lane_connection AS c WHERE c.backend_pid = pg_backend_pid());
        FOR v_lane IN
            SELECT l.lane_id, s.name, s.removed_at IS NOT NULL AS removed,
                   NOT v_held AND pg_try_advisory_xact_lock(lanekeeper.lane_lock(l.lane_id)) AS locked
            FROM (
                SELECT l.lane_id, l.subscription_id FROM lanekeeper.lane AS l
                WHERE l.session_id = v_session.session_id ORDER BY l.lane_id OFFSET 0
            ) AS l
            JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
        LOOP
            IF v_lane.locked THEN
                SELECT e.expired, e.first_seq INTO v_done
                FROM lanekeeper.expire_lane(v_lane.lane_id, v_session.session_id, v_newest.seq, v_newest.day,
                                            v_reason) AS e;
            ELSE
                v_held := true;
                INSERT INTO lanekeeper.closing_lane AS c (lane_id, session_id, seq, day, reason)
                VALUES (v_lane.lane_id, v_session.session_id, v_newest.seq, v_newest.day, v_reason)
                ON CONFLICT (lane_id, seq, kind) DO UPDATE
                SET day = excluded.day, reason = excluded.reason, finished_at = NULL;
                -- As far as it is settled by now.
                SELECT greatest(v_newest.seq - p.cursor, 0) AS expired, p.cursor + 1 AS first_seq INTO v_done
                FROM lanekeeper.progress AS p WHERE p.lane_id = v_lane.lane_id
                ORDER BY p.version DESC LIMIT 1;
            END IF;
            IF v_done.expired > 0 AND NOT v_lane.removed THEN
                v_most := greatest(v_most, v_done.expired);
                v_lanes := v_lanes || jsonb_build_object(
                    'subscription', v_lane.name, 'from_seq', v_done.first_seq, 'to_seq', v_newest.seq);
            END IF;
        END LOOP;
        IF v_held AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
            PERFORM pg_notify('lanekeeper_closed', format('%s %s through', v_session.session_id, v_newest.seq));
        END IF;
    END IF;
    PERFORM lanekeeper.publish_session(
        close_session.stream, close_session.session,
        CASE WHEN close_session.drain THEN 'session_draining' ELSE 'session_closed' END,
        jsonb_build_object('closed_seq', v_newest.seq, 'reason', close_session.reason)
        || CASE WHEN close_session.drain THEN '{}' ELSE jsonb_build_object('expired', v_most, 'lanes', v_lanes) END);
    RETURN v_most;
END
$$;
