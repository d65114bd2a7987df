-- Appends an event that is the next one of its session, in the caller's transaction, and returns it as enqueue() does. What
-- waits before it gets the outcome `superseded` in every lane, one row for each, however much it is; the cursor only moves
-- forward. `superseded` says for how many events that is, as of the lane that was furthest behind. A repeated call with the
-- same message id or dedupe key does nothing twice.
--
-- - cancel_running: the delivery that is under way is cancelled, on whichever process runs it. Without (a barrier) it ends by
--   itself: its event counts as delivered if the destination accepts it in that attempt, and as superseded if not.
-- - keep_waiting: what waited is appended again behind the interrupt, in its order, each with the header
--   `lanekeeper-superseded`, whose value is the id of the message that it was at first. `appended_again` says how many. An
--   event that some lane has delivered already and another has not is appended for both; one that is under way in a lane is
--   not appended for that lane. A schema that came after them does not judge them. At most 1,000 events with 16 MiB: else LK006, and nothing was changed.
--
-- A full session takes it, since it takes the place of what waits; keep_waiting does not go beyond max_pending (LK001).
--
-- SQLSTATEs as of enqueue(), and LK007: another transaction appends to the session and did not end within 5 s.
--
-- As close_session(), it has the session's append lock until the transaction ends (I1), passes the events of lanes that
-- nobody holds here, under their locks, and leaves those that are held to finish_closing(), because this transaction may
-- stay open and the holder's settlements would wait. Sent messages that are not acknowledged are superseded as well. A
-- parked lane stays parked. The feed hears of it where the caller is a member of the owner's role.
-- Index: as of enqueue() and close_session(). Rows: those of the session's lanes, whatever their backlog; with keep_waiting
-- 1,000 events.
CREATE OR REPLACE FUNCTION lanekeeper.interrupt(
    IN stream text,
    IN session text,
    IN event_type text,
    IN payload jsonb,
    IN keep_waiting boolean DEFAULT false,
    IN cancel_running boolean DEFAULT true,
    INOUT message_id uuid DEFAULT NULL,
    IN dedupe_key text DEFAULT NULL,
    IN priority smallint DEFAULT 0,
    IN headers jsonb DEFAULT '{}',
    OUT seq bigint,
    OUT duplicate boolean,
    OUT superseded bigint,
    OUT appended_again bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    v_day        date;
    v_lane       record;
    v_progress   record;
    v_done       record;
    -- The caller's own connection may hold lanes, in a handler's transaction: session locks are re-entrant.
    v_is_holder  boolean := EXISTS (SELECT FROM lanekeeper.lane_connection AS c WHERE c.backend_pid = pg_backend_pid());
    v_held       boolean := false;
    v_woken      boolean := false;
    v_lanes      jsonb := '[]';
    -- What waits: of each lane its subscription and the seq from which on.
    v_waiting    int[] := '{}';
    v_from       bigint[] := '{}';
    v_lane_ids   bigint[] := '{}';
    v_from_day   date;
    v_count      bigint;
    v_bytes      bigint;
    v_again      jsonb;
BEGIN
    IF interrupt.keep_waiting IS NULL OR interrupt.cancel_running IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'keep_waiting and cancel_running must not be null: nothing was enqueued';
    END IF;
    IF interrupt.keep_waiting AND EXISTS (
        SELECT FROM lanekeeper.stream AS t WHERE t.name = interrupt.stream AND interrupt.event_type = ANY (t.terminal))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('%L ends session %L, and nothing can be appended again behind it: nothing was enqueued',
                             left(interrupt.event_type, 200), left(interrupt.session, 200)),
            HINT = 'Interrupt without keep_waiting, or append it with enqueue(): then what waits is delivered first.';
    END IF;
    superseded := 0;
    appended_again := 0;
    SELECT s.session_id INTO v_session_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id
    WHERE t.name = interrupt.stream AND s.name = interrupt.session;
    BEGIN
        PERFORM set_config('lanekeeper.interrupting', coalesce(lanekeeper.interrupt_pass(v_session_id), ''), true);
        SELECT e.message_id, e.seq, e.duplicate INTO message_id, seq, duplicate
        FROM lanekeeper.enqueue(interrupt.stream, interrupt.session, interrupt.event_type, interrupt.payload, message_id,
                                interrupt.dedupe_key, interrupt.priority, interrupt.headers) AS e;
        -- What is appended again, and whatever else this transaction appends, is bounded as ever.
        PERFORM set_config('lanekeeper.interrupting', '', true);
    EXCEPTION WHEN lock_not_available THEN
        RAISE EXCEPTION USING ERRCODE = 'LK007',
            MESSAGE = format('another transaction appends to session %L and did not end within 5 s: nothing was enqueued',
                             left(interrupt.session, 200)),
            HINT = 'Try again when it has ended.';
    END;
    IF duplicate OR seq = 1 THEN
        RETURN;
    END IF;

    SELECT s.session_id, n.day INTO STRICT v_session_id, v_day
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id
    CROSS JOIN LATERAL lanekeeper.newest_event(s.session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n
    WHERE t.name = interrupt.stream AND s.name = interrupt.session;
    FOR v_lane IN
        SELECT l.lane_id, l.route, s.subscription_id, s.name, s.events, s.removed_at IS NOT NULL AS removed,
               NOT v_is_holder AND pg_try_advisory_xact_lock(lanekeeper.lane_lock(l.lane_id)) AS locked
        FROM (
            SELECT l.lane_id, l.route, l.subscription_id FROM lanekeeper.lane AS l
            WHERE l.session_id = v_session_id ORDER BY l.lane_id OFFSET 0
        ) AS l
        JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    LOOP
        -- In a statement of its own, after the lock.
        SELECT p.cursor, p.cursor_day, p.requeued_after, p.parked_at IS NOT NULL AS parked INTO v_progress
        FROM lanekeeper.progress AS p WHERE p.lane_id = v_lane.lane_id
        ORDER BY p.version DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND OR v_progress.cursor >= seq - 1 AND v_progress.requeued_after IS NULL;
        IF v_lane.locked THEN
            SELECT e.expired, e.first_seq INTO v_done
            FROM lanekeeper.expire_lane(v_lane.lane_id, v_session_id, seq - 1, v_day, 'superseded by an interrupt', 'superseded') AS e;
            IF NOT v_progress.parked AND NOT v_lane.removed THEN
                INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
                VALUES (v_lane.route, interrupt.priority, clock_timestamp(), v_lane.lane_id);
                v_woken := true;
            END IF;
        ELSE
            v_held := true;
            INSERT INTO lanekeeper.closing_lane AS c (lane_id, session_id, seq, day, kind, cuts, reason)
            VALUES (v_lane.lane_id, v_session_id, seq - 1, v_day, 'superseded', interrupt.cancel_running, 'superseded by an interrupt');
            -- As far as it is settled by now.
            SELECT greatest(seq - 1 - v_progress.cursor, 0) AS expired, v_progress.cursor + 1 AS first_seq INTO v_done;
        END IF;
        CONTINUE WHEN v_lane.removed OR v_done.expired = 0;
        superseded := greatest(superseded, v_done.expired);
        v_lanes := v_lanes || jsonb_build_object('subscription', v_lane.name, 'from_seq', v_done.first_seq, 'to_seq', seq - 1);
        v_waiting := v_waiting || v_lane.subscription_id;
        v_lane_ids := v_lane_ids || v_lane.lane_id;
        v_from := v_from || CASE
            WHEN v_lane.locked THEN v_progress.cursor + 1
            -- Its head is under way.
            ELSE coalesce(lanekeeper.lane_head(v_session_id, v_progress.cursor, v_progress.cursor_day, v_lane.events), seq) + 1 END;
        v_from_day := least(v_from_day, v_progress.cursor_day);
    END LOOP;

    IF interrupt.keep_waiting AND cardinality(v_from) > 0 THEN
        SELECT count(*), sum(e.size) INTO v_count, v_bytes
        FROM (
            SELECT e.size FROM lanekeeper.event AS e
            WHERE e.session_id = v_session_id AND e.day >= v_from_day AND e.seq < interrupt.seq
              AND e.seq >= (SELECT min(u.seq) FROM unnest(v_from) AS u (seq))
            ORDER BY e.seq LIMIT 1001
        ) AS e;
        IF v_count > 1000 OR v_bytes > 16 * 1048576 THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('more than 1000 events or 16 MiB wait in session %L, and an interrupt appends no more than that again: nothing was enqueued',
                                 left(interrupt.session, 200)),
                HINT = 'Interrupt without keep_waiting, and append again what is still wanted.';
        END IF;
        SELECT jsonb_agg(jsonb_build_object(
                   'session', interrupt.session, 'event_type', e.event_type, 'payload', e.payload::jsonb, 'priority', e.priority,
                   'headers', coalesce(e.headers, '{}') || jsonb_build_object(
                       'lanekeeper-superseded', coalesce(e.headers ->> 'lanekeeper-superseded', e.message_id::text)))
                   ORDER BY e.seq),
               count(*)
        INTO v_again, appended_again
        FROM lanekeeper.event AS e
        WHERE e.session_id = v_session_id AND e.day >= v_from_day AND e.seq < interrupt.seq
          AND e.seq >= (SELECT min(u.seq) FROM unnest(v_from) AS u (seq))
          AND NOT lanekeeper.is_cancelled(e.headers)
          -- The session was reopened since: appended again, it would end it, and refuse what is behind it.
          AND NOT EXISTS (
              SELECT FROM lanekeeper.stream AS t WHERE t.name = interrupt.stream AND e.event_type = ANY (t.terminal))
          AND EXISTS (
              SELECT FROM unnest(v_waiting, v_from, v_lane_ids) AS w (subscription_id, seq, lane_id)
              JOIN lanekeeper.subscription AS s ON s.subscription_id = w.subscription_id
              WHERE e.seq >= w.seq AND (s.events IS NULL OR e.event_type = ANY (s.events))
                -- Acknowledged ahead of one that is not.
                AND NOT EXISTS (
                    SELECT FROM lanekeeper.sent AS x
                    WHERE x.lane_id = w.lane_id AND x.seq = e.seq AND x.acked_at IS NOT NULL));
        IF EXISTS (
            SELECT FROM lanekeeper.subscription AS s
            WHERE s.subscription_id = ANY (v_waiting) AND s.on_full = 'drop_oldest' AND s.max_pending <= appended_again)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('a subscription of session %L drops its oldest events beyond max_pending, and would drop the interrupt before the %s events that are to be appended again: nothing was enqueued',
                                 left(interrupt.session, 200), appended_again),
                HINT = 'Interrupt without keep_waiting.';
        END IF;
        IF appended_again > 0 THEN
            PERFORM set_config('lanekeeper.appending_again', lanekeeper.interrupt_pass(v_session_id), true);
            PERFORM lanekeeper.enqueue_many(interrupt.stream, v_again);
            PERFORM set_config('lanekeeper.appending_again', '', true);
        END IF;
    END IF;

    IF v_woken THEN
        PERFORM lanekeeper.ring();
    END IF;
    IF v_held AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('lanekeeper_closed', format('%s %s %s', v_session_id, seq - 1,
                                                      CASE WHEN interrupt.cancel_running THEN 'through' ELSE 'behind' END));
    END IF;
    PERFORM lanekeeper.publish_session(
        interrupt.stream, interrupt.session, 'session_interrupted',
        jsonb_build_object('seq', seq, 'message_id', message_id, 'cancel_running', interrupt.cancel_running,
                           'superseded', superseded, 'appended_again', appended_again, 'lanes', v_lanes));
END
$$;
