-- Appends one event in the caller's transaction, and returns its message id and seq; for a key or id that was used
-- before, those of the first call, with `duplicate`.
--
-- Promise: the event is delivered if and only if the transaction commits. SQLSTATEs, each with nothing written: LK001 full
-- session, LK002 closed session, LK003 unknown stream, LK005 payload too large, LK006 invalid argument, or a payload that the
-- schema of its type does not take, LK009 a stream of other producers; 40001 in REPEATABLE READ and SERIALIZABLE, where another
-- transaction appended to the session, or closed it, after the snapshot. A key or id that was used before is answered all the
-- same by a full or closed session, and whatever the schema.
--
-- Order (I1): take the session's append lock, exclusive, until the transaction ends; seq is the newest seq plus one. In
-- READ COMMITTED every statement after the lock sees all earlier appends of the session. In the stricter levels the
-- snapshot may be older than the lock: refuse_stale_snapshot() finds that out. A session's creator, and whatever its lanes
-- lack, is seen to by open_session().
--
-- Closed sessions: a close takes the append lock and writes the session's row, which has never the stream's lanes_version
-- then. An append may have read that row before it waited for the lock. So, after the lock, it looks whether the row is
-- still where it was, by its ctid, which costs less than a look-up; only where it is not does it read `closed_at`.
--
-- Full sessions: where a subscription of the stream refuses what is beyond its max_pending, `stream.bounded` is set.
-- refuse_full() counts under the append lock, so appends at the same time never pass the bound together.
--
-- Terminal events: a stream with terminal types is bounded too. end_session() closes the session before the event is inserted,
-- in the same transaction and under the append lock: so it is the last one, and the only one.
--
-- Schemas: a stream with schemas of event types is bounded too. check_schema() judges the payload of an event of such a type,
-- under the append lock, and only where the event is none that is there already.
--
-- Ready entries (I13): under the append lock, one is inserted for each lane that nothing else would make look at the
-- event.
-- - The cursor is at the previous event: the lane is idle and gets one.
-- - It is not: a ready entry or a holder exists. A holder removes the lane's last entry only with the append lock in
--   shared mode and a look at the log after it, so one of the two sees the other.
-- - The subscription has a filter: only a matching event counts, and the lane is idle where no matching event lies between
--   cursor and event. That look back is bounded by filter_look_back(): the event that makes the distance as long wakes
--   the lane whatever its type, so that the cursor passes the filtered ones.
-- - `lane.plain`: every event may wake the lane, so its progress alone tells that it needs nothing, and the subscription
--   is read only where some lane may need an entry. `apply` takes `plain` away where a filter changes; never sets it.
-- - The lane waits for acknowledgements, and the previous event is sent: it gets one, since its window may have room.
-- - The priority is higher than the previous event's: a second entry, at that priority.
-- - Parked lanes and removed subscriptions get none: unpark, retry, a wider filter and a returning subscription insert
--   their own.
-- - In the stricter isolation levels every lane gets one: a spare entry is harmless.
--
-- Bound (I9): three statements in the usual case (session and lock; newest event and lanes; event), because each further
-- statement and expression costs a transaction microseconds to set up. What is rare is behind one condition, `v_usual`, or has
-- functions of its own. The log has no CHECK constraints, which every INSERT would parse anew: what they would say is tested
-- here, and in enqueue_many(). All look-ups
-- are by key and pinned (LATERAL with OFFSET 0, planner settings below): a plan that was made while the tables were empty
-- is kept.
-- Index: stream's and session's unique names, event's primary key backwards in the recent partitions, progress' primary key.
-- The secret of the locks is read by its row's place, which never changes unless somebody writes or restores the row by hand:
-- that costs less than a look-up. Where it is not there, read_lock_secret() finds it.
-- enable_bitmapscan is off for the reason given in newest_event().
CREATE OR REPLACE FUNCTION lanekeeper.enqueue(
    IN stream text,
    IN session text,
    IN event_type text,
    IN payload jsonb,
    INOUT message_id uuid DEFAULT NULL,
    IN dedupe_key text DEFAULT NULL,
    IN priority smallint DEFAULT 0,
    IN headers jsonb DEFAULT '{}',
    OUT seq bigint,
    OUT duplicate boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id    bigint;
    -- The ctid of the session's row, as it was read before the lock.
    v_session_ctid  tid;
    v_stream_id     int;
    -- Live followers may wait for the stream's events.
    v_followed      boolean;
    -- Some subscription may refuse the event because the session is full, or the stream has terminal event types.
    v_bounded       boolean;
    v_terminal      text[];
    -- Event types that have a schema.
    v_judged        text[];
    -- Nobody has written the session's row since it was read, the stream is neither bounded nor followed, and it is not one of
    -- the appends that see to tomorrow's partition.
    v_usual         boolean;
    v_closed        boolean;
    -- What the log keeps, and whose size counts: jsonb may be far smaller (1e131071) or compressed.
    v_payload       text := enqueue.payload::text;
    v_size          int := octet_length(v_payload);
    v_now           timestamptz;
    v_today         date;
    v_day           date;
    v_prev_priority smallint;
    -- Some lane may need a ready entry.
    v_check_lanes   boolean;
    -- The newest event is of a day before today, or there is none.
    v_other_day     boolean;
    -- Nothing is left of the session in the log: a lane's cursor may be before its last seq, and the lane idle.
    v_bare          boolean;
    -- The snapshot may be older than the append lock, and miss what was appended before it.
    v_fixed         boolean;
    -- `message_id` becomes the result: what the producer gave is kept apart from it.
    v_given_id      uuid;
    v_first_id      uuid;
    v_first_seq     bigint;
BEGIN
    -- The lock is the last thing that happens to the one row. What is read here may be older than the lock. That
    -- is harmless: a session is never renamed or removed, maintenance removes its lanes only when no snapshot is as
    -- old as this one, lanes that it got meanwhile are read below, and so is a close.
    -- OFFSET 0, here and below, leaves no other plan than a look-up by the whole key: the plan may have
    -- been made while the tables were empty, and is kept.
    SELECT s.session_id, enqueue.message_id,
           CASE WHEN pg_advisory_xact_lock(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.ctid = '(0,1)'))) IS NOT NULL THEN clock_timestamp() END,
           (clock_timestamp() AT TIME ZONE 'UTC')::date, s.session_ctid, t.stream_id, t.followed, t.bounded, t.terminal,
           t.judged
    INTO v_session_id, v_given_id, v_now, v_today, v_session_ctid, v_stream_id, v_followed, v_bounded, v_terminal,
         v_judged
    FROM lanekeeper.stream AS t
    CROSS JOIN LATERAL (
        SELECT s.session_id, s.lanes_version, s.ctid AS session_ctid FROM lanekeeper.session AS s
        WHERE s.stream_id = t.stream_id AND s.name = enqueue.session OFFSET 0
    ) AS s
    WHERE t.name = enqueue.stream AND v_size <= t.max_payload_bytes AND s.lanes_version = t.lanes_version
      AND (t.producers IS NULL OR lanekeeper.may_produce(t.producers));
    IF (v_now IS NOT NULL AND octet_length(enqueue.event_type) <= 200 AND enqueue.event_type <> ''
        AND enqueue.priority = 0 AND enqueue.headers = '{}') IS NOT TRUE THEN
        IF v_session_id > 0 AND v_now IS NULL THEN
            -- The lock's secret is not where it was.
            PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(v_session_id));
            v_now := clock_timestamp();
        END IF;
        IF (v_session_id > 0 AND octet_length(enqueue.event_type) BETWEEN 1 AND 200 AND enqueue.priority BETWEEN -100 AND 100
            AND jsonb_typeof(enqueue.headers) = 'object' AND octet_length(enqueue.headers::text) <= 65536
            AND NOT enqueue.headers ? 'lanekeeper-cancelled') IS NOT TRUE THEN
            PERFORM lanekeeper.check_event(enqueue.stream, enqueue.session, enqueue.event_type, enqueue.payload,
                enqueue.dedupe_key, enqueue.priority, enqueue.headers, v_size);
        END IF;
        IF v_session_id IS NULL THEN
            v_given_id := message_id;
            SELECT o.session_id, o.locked_at INTO v_session_id, v_now
            FROM lanekeeper.open_session(enqueue.stream, enqueue.session) AS o;
            v_today := (v_now AT TIME ZONE 'UTC')::date;
            SELECT t.stream_id, t.followed, t.bounded, t.terminal, t.judged
            INTO v_stream_id, v_followed, v_bounded, v_terminal, v_judged
            FROM lanekeeper.stream AS t WHERE t.name = enqueue.stream;
        END IF;
    END IF;

    -- From here on, in READ COMMITTED, every statement sees all earlier appends of the session. A lane
    -- that is not plain may be idle with filtered events behind its cursor: it is looked at below.
    SELECT e.seq + 1, e.day, e.priority, false,
           coalesce(v_given_id, lanekeeper.message_id(v_now, gen_random_uuid())),
           EXISTS (
               SELECT FROM lanekeeper.lane AS l
               WHERE l.session_id = v_session_id AND (
                   SELECT p.parked_at IS NULL AND (greatest(p.cursor, p.sent) >= e.seq OR enqueue.priority > e.priority
                          OR NOT l.plain AND e.seq - p.cursor < lanekeeper.filter_look_back())
                   FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
                   ORDER BY p.version DESC LIMIT 1)),
           EXISTS (SELECT FROM lanekeeper.session AS s WHERE s.ctid = v_session_ctid)
               AND NOT (v_bounded OR v_followed) AND e.seq % 64 <> 63
    INTO seq, v_day, v_prev_priority, duplicate, message_id, v_check_lanes, v_usual
    FROM lanekeeper.recent_event AS e
    WHERE e.session_id = v_session_id AND e.day >= v_today
    ORDER BY e.seq DESC LIMIT 1;

    IF v_usual IS NOT TRUE OR v_given_id IS NOT NULL OR enqueue.dedupe_key IS NOT NULL
       OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        IF octet_length(enqueue.dedupe_key) NOT BETWEEN 1 AND 512 THEN
            PERFORM lanekeeper.check_event(enqueue.stream, enqueue.session, enqueue.event_type, enqueue.payload,
                enqueue.dedupe_key, enqueue.priority, enqueue.headers, v_size);
        END IF;
        v_fixed := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
        v_other_day := seq IS NULL;
        v_closed := v_usual IS NOT TRUE AND EXISTS (
            SELECT FROM lanekeeper.session AS s WHERE s.session_id = v_session_id AND s.closed_at IS NOT NULL);
        IF v_other_day THEN
            -- The session's first event, or its first of the day.
            SELECT n.seq + 1, n.day, n.priority, false, true,
                   coalesce(v_given_id, lanekeeper.message_id(v_now, gen_random_uuid()))
            INTO seq, v_day, v_prev_priority, duplicate, v_check_lanes, message_id
            FROM lanekeeper.newest_event(v_session_id, v_today) AS n;
            -- An event that is in the log is of another day, or it would have been found above. Not in one expression
            -- with the read of the log, which locks every partition.
            IF seq > 1 AND v_day = v_today THEN
                v_bare := NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = v_session_id);
            END IF;
        END IF;
        IF v_fixed THEN
            PERFORM lanekeeper.refuse_stale_snapshot(v_session_id, seq, v_day, v_today);
            v_check_lanes := true;
        END IF;
        -- Only ids that the producer chose can come twice.
        IF v_given_id IS NOT NULL OR enqueue.dedupe_key IS NOT NULL THEN
            SELECT k.message_id, k.seq INTO v_first_id, v_first_seq
            FROM lanekeeper.remember_keys(enqueue.stream, v_session_id, message_id, v_given_id, enqueue.dedupe_key, seq) AS k;
            IF v_first_seq IS NOT NULL THEN
                message_id := v_first_id;
                seq := v_first_seq;
                duplicate := true;
                RETURN;
            END IF;
        END IF;
        IF v_closed THEN
            PERFORM lanekeeper.raise_session_closed(v_session_id);
        END IF;
        IF v_bounded AND seq > 1 THEN
            PERFORM lanekeeper.refuse_full(v_session_id, seq - 1, enqueue.event_type);
        END IF;
        IF enqueue.event_type = ANY (v_judged) THEN
            PERFORM lanekeeper.check_schema(enqueue.stream, v_session_id, enqueue.event_type, enqueue.payload);
        END IF;
        IF enqueue.event_type = ANY (v_terminal) THEN
            PERFORM lanekeeper.end_session(v_session_id, seq, enqueue.event_type);
        END IF;
        IF v_other_day THEN
            v_day := greatest(v_day, v_today);
            IF to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NULL THEN
                PERFORM lanekeeper.create_event_partition(v_day);
            END IF;
            PERFORM lanekeeper.create_event_partition_ahead(v_now);
            UPDATE lanekeeper.session AS s SET newest_day = v_day
            WHERE s.session_id = v_session_id AND s.newest_day IS DISTINCT FROM v_day;
        ELSIF enqueue.seq % 64 = 0 THEN
            -- In good time for tomorrow, by sessions that had their first event of the day long ago.
            PERFORM lanekeeper.create_event_partition_ahead(v_now);
        END IF;
        IF v_followed THEN
            PERFORM lanekeeper.wake_followers(v_stream_id, ARRAY[v_session_id]);
        END IF;
    END IF;

    IF enqueue.priority <> 0 THEN
        PERFORM lanekeeper.remember_priority(enqueue.priority);
    END IF;
    INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
    VALUES (v_session_id, enqueue.seq, v_day, enqueue.priority, v_size, v_now,
            message_id, enqueue.event_type, v_payload, nullif(enqueue.headers, '{}'));

    IF v_check_lanes THEN
        -- A ready entry for each lane that nothing else would make look at the event: see the head.
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session, day, progress_ctid)
        -- Due from now on, when the transaction has its number: low-water marks count on it (first_ready_entries).
        SELECT l.route, enqueue.priority, clock_timestamp(), l.lane_id, v_session_id, enqueue.session,
               CASE WHEN p.settled >= enqueue.seq - 1 THEN v_day END, p.progress_ctid
        FROM lanekeeper.lane AS l
        CROSS JOIN LATERAL (
            SELECT s.events FROM lanekeeper.subscription AS s
            WHERE s.subscription_id = l.subscription_id AND s.removed_at IS NULL OFFSET 0
        ) AS s
        CROSS JOIN LATERAL (
            SELECT greatest(p.cursor, p.sent) AS cursor, p.cursor AS settled, p.cursor_day, p.parked_at, p.ctid AS progress_ctid
            FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
            ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE l.session_id = v_session_id
          AND (v_fixed IS TRUE OR p.parked_at IS NULL AND (v_bare IS TRUE OR CASE
              WHEN l.plain OR s.events IS NULL THEN
                  p.cursor >= enqueue.seq - 1 OR enqueue.priority > v_prev_priority
              WHEN enqueue.event_type = ANY (s.events) THEN
                  enqueue.priority > v_prev_priority
                  OR enqueue.seq - 1 - p.cursor < lanekeeper.filter_look_back() AND (
                      p.cursor >= enqueue.seq - 1
                      OR NOT lanekeeper.has_matching(l.session_id, p.cursor, p.cursor_day, enqueue.seq - 1, s.events))
              -- A long run of filtered events wakes the lane once, so that its cursor passes them.
              ELSE enqueue.seq - 1 - p.cursor < lanekeeper.filter_look_back()
                   AND enqueue.seq - p.cursor >= lanekeeper.filter_look_back()
          END));
        -- As in ring().
        IF FOUND AND pg_try_advisory_xact_lock_shared(lanekeeper.doorbell_lock((SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.ctid = '(0,1)'))) IS NOT TRUE
           AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
            PERFORM pg_notify('lanekeeper', '');
        END IF;
    END IF;
END
$$;
