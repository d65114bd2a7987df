-- Cancels one message, in the caller's transaction, in every lane of its session that has not settled it. Returns
-- - cancelled: it waits, and is not delivered: its outcome is `cancelled`, when its turn comes. Where a worker holds its lane,
--   that worker is told; if its turn comes in the moment before it hears (at the latest at its poll floor), it is delivered
--   all the same. A message that was sent and is not acknowledged is cancelled as well: a later acknowledgement is unknown.
-- - running: it is the next one of a lane that a worker holds. Its delivery is cancelled where it runs, unless it ends first;
--   the view `message` says which. The destination may have got it either way.
-- - already_settled: every lane of its session has passed it, or none is to get it.
-- - unknown: there is no such message, or it is of a stream that is none of `streams`.
-- None of these is an error, and a repeated call says the same. SQLSTATEs: LK007 another transaction has the message or its
-- lane locked and did not end within 5 s; LK009 a stream of other producers.
--
-- `stream` and `session` say where it is, which spares the search of find_message(). Who may cancel: whoever may append to
-- the stream and has EXECUTE here, whoever appended the message.
--
-- The mark is the header `lanekeeper-cancelled` of the event itself: whoever fetches it from now on passes it with its
-- outcome (I4), and no fetch reads more for that. Of lanes that nobody holds, under their locks, a head is passed here. Lanes
-- that are held are told by closing_lane and its notification; their progress is not touched, because this transaction may
-- stay open.
-- Index: see find_message(); lane's (session_id, subscription_id), progress' primary key. Rows: the event, and those of the
-- session's lanes.
CREATE OR REPLACE FUNCTION lanekeeper.cancel(
    message_id uuid, stream text DEFAULT NULL, session text DEFAULT NULL, streams text[] DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
    v_event     record;
    v_stream    record;
    v_lane      record;
    v_progress  record;
    v_is_holder boolean := EXISTS (SELECT FROM lanekeeper.lane_connection AS c WHERE c.backend_pid = pg_backend_pid());
    v_running   boolean := false;
    v_waits     boolean := false;
    v_held      boolean := false;
    v_woken     boolean := false;
BEGIN
    SELECT f.session_id, f.seq, f.day INTO v_event FROM lanekeeper.find_message(cancel.message_id, cancel.stream, cancel.session) AS f;
    IF v_event.seq IS NULL THEN
        RETURN 'unknown';
    END IF;
    SELECT t.name, t.producers INTO STRICT v_stream
    FROM lanekeeper.session AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.session_id = v_event.session_id;
    IF v_stream.name <> ALL (cancel.streams) OR v_stream.name <> cancel.stream THEN
        RETURN 'unknown';
    END IF;
    IF v_stream.producers IS NOT NULL AND NOT lanekeeper.may_produce(v_stream.producers) THEN
        PERFORM lanekeeper.raise_not_producer(v_stream.name);
    END IF;

    FOR v_lane IN
        SELECT l.lane_id, l.route, l.events,
               NOT v_is_holder AND pg_try_advisory_xact_lock(lanekeeper.lane_lock(l.lane_id)) AS locked
        FROM (
            SELECT l.lane_id, l.route, s.events
            FROM lanekeeper.lane AS l
            JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
            JOIN lanekeeper.event AS e ON e.session_id = v_event.session_id AND e.seq = v_event.seq AND e.day = v_event.day
            CROSS JOIN LATERAL (
                SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
            ) AS p
            WHERE l.session_id = v_event.session_id AND p.cursor < v_event.seq
              AND (s.events IS NULL OR e.event_type = ANY (s.events))
            ORDER BY l.lane_id OFFSET 0
        ) AS l
    LOOP
        -- In a statement of its own, after the lock.
        SELECT p.cursor, p.cursor_day, p.requeued_after, p.parked_at IS NOT NULL AS parked INTO v_progress
        FROM lanekeeper.progress AS p WHERE p.lane_id = v_lane.lane_id
        ORDER BY p.version DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND OR v_progress.cursor >= v_event.seq;
        IF NOT v_waits THEN
            v_waits := true;
            UPDATE lanekeeper.event AS e SET headers = coalesce(e.headers, '{}') || '{"lanekeeper-cancelled": "true"}'
            WHERE e.session_id = v_event.session_id AND e.seq = v_event.seq AND e.day = v_event.day
              AND NOT lanekeeper.is_cancelled(e.headers);
        END IF;
        IF NOT v_lane.locked THEN
            v_held := true;
            v_running := v_running OR v_progress.requeued_after IS NULL
                AND lanekeeper.lane_head(v_event.session_id, v_progress.cursor, v_progress.cursor_day, v_lane.events) = v_event.seq;
            INSERT INTO lanekeeper.closing_lane AS c (lane_id, session_id, seq, day, kind, finished_at)
            VALUES (v_lane.lane_id, v_event.session_id, v_event.seq, v_event.day, 'cancelled', clock_timestamp())
            ON CONFLICT (lane_id, seq, kind) DO UPDATE SET finished_at = excluded.finished_at;
        ELSIF v_progress.requeued_after IS NULL
            AND lanekeeper.lane_head(v_event.session_id, v_progress.cursor, v_progress.cursor_day, v_lane.events) = v_event.seq
        THEN
            PERFORM lanekeeper.expire_lane(v_lane.lane_id, v_event.session_id, v_event.seq, v_event.day, NULL, 'cancelled');
            IF NOT v_progress.parked THEN
                INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
                VALUES (lanekeeper.entry_route(v_lane.lane_id, v_lane.route), 0, clock_timestamp(), v_lane.lane_id);
                v_woken := true;
            END IF;
        END IF;
    END LOOP;
    IF v_woken THEN
        PERFORM lanekeeper.ring();
    END IF;
    IF v_held AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('lanekeeper_closed', format('%s %s only', v_event.session_id, v_event.seq));
    END IF;
    RETURN CASE WHEN v_running THEN 'running' WHEN v_waits THEN 'cancelled' ELSE 'already_settled' END;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'LK007',
        MESSAGE = 'another transaction has the message or its lane locked and did not end within 5 s: nothing was changed',
        HINT = 'Try again when it has ended.';
END
$$;
