-- Appends many events in the caller's transaction, in the order of the array within each session; all or nothing.
-- Returns a row per event, in the order of the array. SQLSTATEs as of enqueue(). LK006 also where the transaction would lock
-- more sessions than a quarter of the server's lock table has entries (1,000 at the least), before any is locked: a full
-- table fails the transactions of all databases. Sessions that the call creates need no lock.
--
-- Sessions are created, and then locked, in the order of their names: two bulk calls never deadlock each other. The rules
-- for seq (I1) and for ready entries (I13) are those of enqueue(). A lane gets one entry for all events of the call.
-- Events with a message id or dedupe key of their own, and the stricter isolation levels, go through enqueue() one by one.
-- One closed session refuses all, and so does one event that its session has no room for: LK001 names the first. So does one
-- behind a terminal event of its session: LK002 names it. So does a payload that the schema of its type does not take: LK006
-- names the first.
--
-- A call for up to 64 sessions adds nothing to that count, like single calls: a call of eight events, as the appender makes
-- them, would pay 85 of 2,475 thousand instructions for it.
--
-- Bound: what is needed of an event more than once is taken out of the array once, into arrays that are read beside it.
-- Nothing is joined by name, and no payload is sorted or kept aside.
CREATE OR REPLACE FUNCTION lanekeeper.enqueue_many(stream text, events jsonb)
RETURNS TABLE (message_id uuid, seq bigint, duplicate boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id     int;
    v_stream_lanes  bigint;
    v_max_bytes     int;
    v_producers     text[];
    -- Live followers may wait for the stream's events.
    v_followed      boolean;
    -- Some subscription of the stream refuses what its sessions have no room for, or there are terminal event types, or
    -- types that have a schema.
    v_bounded       boolean;
    v_terminal      text[];
    v_judged        text[];
    v_now           timestamptz;
    v_today         date;
    v_salt          bigint;
    v_bad           bigint;
    v_one_by_one    boolean;
    v_prioritised   boolean;
    -- Of each event: its session's ord in v_names, and its number among that session's events.
    v_session_ords  int[];
    v_nths          int[];
    -- Of each session, in the order of names. v_before: as found at first, NULL where it was not there.
    v_names         text[];
    v_before        bigint[];
    v_ids           bigint[];
    -- The ctids of their rows, as they were read before the locks; and whether nobody has written these since.
    v_session_ctids tid[];
    v_unchanged     boolean;
    v_newest        bigint[];
    v_days          date[];
    v_priorities    smallint[];
    -- This call created all sessions that were not there: nobody can have appended to them.
    v_created       boolean := false;
    -- Some session stands at another version than the stream.
    v_stale         boolean;
    v_lack          bigint[];
    -- Sessions of which nothing is left in the log: a lane's cursor may be before their last seq, and the lane idle.
    v_bare          bigint[];
    -- Sessions without an event of today.
    v_other_day     bigint[];
    v_lack_newest   bigint[];
    v_day           date;
BEGIN
    SELECT s.stream_id, s.lanes_version, s.max_payload_bytes, s.producers, s.followed, s.bounded, s.terminal, s.judged
    INTO v_stream_id, v_stream_lanes, v_max_bytes, v_producers, v_followed, v_bounded, v_terminal, v_judged
    FROM lanekeeper.stream AS s WHERE s.name = enqueue_many.stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(enqueue_many.stream);
    END IF;
    IF v_producers IS NOT NULL AND NOT lanekeeper.may_produce(v_producers) THEN
        PERFORM lanekeeper.raise_not_producer(enqueue_many.stream);
    END IF;
    IF jsonb_typeof(enqueue_many.events) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'events must be a JSON array: nothing was enqueued';
    END IF;

    SELECT min(i.ord) FILTER (WHERE i.bad),
           bool_or(i.named) OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'),
           bool_or(i.prioritised),
           -- Each in an order of its own: from PostgreSQL 16 on, one aggregate's order becomes that of all.
           array_agg(i.session_ord ORDER BY i.ord), array_agg(i.nth ORDER BY i.ord),
           array_agg(i.name ORDER BY i.session_ord) FILTER (WHERE i.nth = 1)
    INTO v_bad, v_one_by_one, v_prioritised, v_session_ords, v_nths, v_names
    FROM (
        SELECT i.ord, i.name, i.bad, i.named, i.prioritised,
               dense_rank() OVER (ORDER BY i.name)::int AS session_ord,
               row_number() OVER (PARTITION BY i.name ORDER BY i.ord)::int AS nth
        FROM (
            SELECT i.ord, (i.e ->> 'session') COLLATE "C" AS name,
                   coalesce(i.e ->> 'message_id', i.e ->> 'dedupe_key') IS NOT NULL AS named,
                   coalesce(i.e ->> 'priority', '0') <> '0' AS prioritised,
                   jsonb_typeof(i.e) <> 'object'
                       OR coalesce(octet_length(i.e ->> 'session'), 0) NOT BETWEEN 1 AND 512
                       OR coalesce(octet_length(i.e ->> 'event_type'), 0) NOT BETWEEN 1 AND 200
                       OR octet_length(i.e ->> 'dedupe_key') NOT BETWEEN 1 AND 512
                       OR NOT i.e ? 'payload'
                       OR coalesce((i.e ->> 'priority')::numeric, 0) NOT BETWEEN -100 AND 100
                       OR CASE WHEN i.e ? 'headers' THEN
                           jsonb_typeof(i.e -> 'headers') NOT IN ('object', 'null')
                           OR octet_length((i.e -> 'headers')::text) > 65536
                           OR i.e -> 'headers' ? 'lanekeeper-cancelled' END AS bad
            FROM jsonb_array_elements(enqueue_many.events) WITH ORDINALITY AS i (e, ord)
            -- Keeps the elements themselves out of the sorts.
            OFFSET 0
        ) AS i
        ORDER BY i.ord
    ) AS i;
    IF v_bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('event %s of the array is not valid: nothing was enqueued', v_bad),
            HINT = 'Each needs session (1 to 512 bytes), event_type (1 to 200) and payload; headers must be an object of at most 65536 bytes without lanekeeper-cancelled, priority between -100 and 100.';
    END IF;
    IF v_names IS NULL THEN
        RETURN;
    END IF;
    -- All creations come before the first lock, each in the order of names: a call that waits for a creation
    -- holds no lock that the creator may need.
    LOOP
        SELECT array_agg(s.session_id ORDER BY n.ord), array_agg(s.session_ctid ORDER BY n.ord),
               coalesce(bool_or(s.lanes_version <> v_stream_lanes), false)
        INTO v_ids, v_session_ctids, v_stale
        FROM unnest(v_names) WITH ORDINALITY AS n (name, ord)
        LEFT JOIN LATERAL (
            SELECT s.session_id, s.lanes_version, s.ctid AS session_ctid FROM lanekeeper.session AS s
            WHERE s.stream_id = v_stream_id AND s.name = n.name OFFSET 0
        ) AS s ON true;
        IF v_before IS NULL THEN
            v_before := v_ids;
            IF cardinality(v_ids) > 64 THEN
                PERFORM lanekeeper.bound_append_locks(
                    array_remove(v_ids, NULL),
                    CASE WHEN v_one_by_one THEN cardinality(v_ids) - cardinality(array_remove(v_ids, NULL)) ELSE 0 END);
            END IF;
        END IF;
        EXIT WHEN array_position(v_ids, NULL) IS NULL;
        WITH created AS (
            INSERT INTO lanekeeper.session (stream_id, name, lanes_version, newest_day)
            SELECT v_stream_id, n.name, v_stream_lanes, (clock_timestamp() AT TIME ZONE 'UTC')::date
            FROM unnest(v_names, v_ids) WITH ORDINALITY AS n (name, session_id, ord)
            WHERE n.session_id IS NULL
            ORDER BY n.ord
            ON CONFLICT DO NOTHING
            RETURNING session_id
        )
        SELECT (SELECT count(*) FROM created)
               = (SELECT count(*) FROM unnest(v_ids) AS u (session_id) WHERE u.session_id IS NULL)
        INTO v_created;
    END LOOP;
    -- Another transaction created some of them meanwhile: all are locked.
    IF NOT v_created AND cardinality(v_ids) > 64 AND array_position(v_before, NULL) IS NOT NULL THEN
        PERFORM lanekeeper.bound_append_locks(v_ids, 0);
    END IF;
    -- Nobody sees a session that this transaction creates: whoever wants to create it too waits for the row.
    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(u.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))
    FROM unnest(v_ids, v_before) AS u (session_id, before)
    WHERE u.before IS NOT NULL OR NOT v_created;

    -- From here on, in READ COMMITTED, every statement sees all earlier appends of these sessions.
    v_now := clock_timestamp();
    v_today := (v_now AT TIME ZONE 'UTC')::date;
    SELECT array_agg(n.seq ORDER BY u.ord), array_agg(n.day ORDER BY u.ord), array_agg(n.priority ORDER BY u.ord),
           bool_and(EXISTS (SELECT FROM lanekeeper.session AS s WHERE s.ctid = u.session_ctid))
    INTO v_newest, v_days, v_priorities, v_unchanged
    FROM unnest(v_ids, v_session_ctids) WITH ORDINALITY AS u (session_id, session_ctid, ord)
    LEFT JOIN LATERAL (
        SELECT e.seq, e.day, e.priority FROM lanekeeper.recent_event AS e
        WHERE e.session_id = u.session_id AND e.day >= v_today
        ORDER BY e.seq DESC LIMIT 1
    ) AS n ON true;
    -- As in the single call, which sees to it one by one: a session whose row was written meanwhile may be closed.
    IF NOT v_one_by_one AND (v_stale OR NOT v_unchanged) THEN
        PERFORM lanekeeper.raise_session_closed(s.session_id)
        FROM unnest(v_ids) AS u (session_id)
        CROSS JOIN LATERAL (
            SELECT s.session_id FROM lanekeeper.session AS s
            WHERE s.session_id = u.session_id AND s.closed_at IS NOT NULL OFFSET 0
        ) AS s;
    END IF;
    IF array_position(v_newest, NULL) IS NOT NULL THEN
        SELECT array_agg(coalesce(u.seq, o.seq, 0) ORDER BY u.ord), array_agg(coalesce(u.day, greatest(o.day, v_today)) ORDER BY u.ord),
               array_agg(coalesce(u.priority, o.priority, 0) ORDER BY u.ord),
               -- An event that is in the log is of another day, or it would have been found above.
               array_agg(u.session_id) FILTER (WHERE u.seq IS NULL AND o.seq > 0 AND o.day = v_today),
               array_agg(u.session_id) FILTER (WHERE u.seq IS NULL)
        INTO v_newest, v_days, v_priorities, v_bare, v_other_day
        FROM unnest(v_ids, v_before, v_newest, v_days, v_priorities) WITH ORDINALITY
             AS u (session_id, before, seq, day, priority, ord)
        -- OFFSET 0 keeps the condition below the call.
        LEFT JOIN LATERAL (
            SELECT o.seq, o.day, o.priority FROM lanekeeper.newest_event(u.session_id, v_today) AS o
            WHERE u.seq IS NULL AND (u.before IS NOT NULL OR NOT v_created) OFFSET 0
        ) AS o ON true;
        IF v_bare IS NOT NULL THEN
            SELECT array_agg(u.session_id) INTO v_bare
            FROM unnest(v_bare) AS u (session_id)
            WHERE NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = u.session_id OFFSET 0);
        END IF;
        -- One by one, the single call writes it down.
        IF NOT v_one_by_one THEN
            UPDATE lanekeeper.session AS s SET newest_day = u.day
            FROM unnest(v_ids, v_days) AS u (session_id, day)
            WHERE u.session_id = ANY (v_other_day) AND s.session_id = u.session_id AND s.newest_day IS DISTINCT FROM u.day;
        END IF;
    END IF;
    -- As create_event_partition_ahead() asks too: most calls are spared a call.
    IF date_part('hour', v_now AT TIME ZONE 'UTC') >= 22 THEN
        PERFORM lanekeeper.create_event_partition_ahead(v_now);
    END IF;

    IF v_stale OR array_position(v_before, NULL) IS NOT NULL THEN
        -- One by one, the single call sees to the sessions that are stale; those that are new stand at the
        -- stream's version already.
        SELECT array_agg(u.session_id ORDER BY u.ord), array_agg(u.newest ORDER BY u.ord)
        INTO v_lack, v_lack_newest
        FROM unnest(v_ids, v_before, v_newest) WITH ORDINALITY AS u (session_id, before, newest, ord)
        WHERE u.before IS NULL OR NOT v_one_by_one AND EXISTS (
            SELECT FROM lanekeeper.session AS s
            WHERE s.session_id = u.session_id AND s.lanes_version <> v_stream_lanes OFFSET 0);
        IF v_lack IS NOT NULL THEN
            PERFORM lanekeeper.create_lanes(v_lack, v_lack_newest, v_stream_id, v_stream_lanes, v_today);
        END IF;
    END IF;

    IF v_bounded THEN
        IF v_one_by_one THEN
            RETURN QUERY
            SELECT r.message_id, r.seq, r.duplicate FROM lanekeeper.enqueue_each(enqueue_many.stream, enqueue_many.events) AS r;
            RETURN;
        END IF;
        PERFORM lanekeeper.refuse_full_many(v_ids, v_newest, v_session_ords, enqueue_many.events);
        IF v_judged IS NOT NULL THEN
            PERFORM lanekeeper.check_schemas(
                enqueue_many.stream, v_ids, v_session_ords, enqueue_many.events, v_judged, v_max_bytes);
        END IF;
        IF v_terminal IS NOT NULL THEN
            PERFORM lanekeeper.end_sessions(v_ids, v_newest, v_session_ords, v_nths, enqueue_many.events, v_terminal);
        END IF;
    END IF;
    IF v_one_by_one THEN
        RETURN QUERY
        SELECT r.message_id, r.seq, r.duplicate
        FROM jsonb_array_elements(enqueue_many.events) WITH ORDINALITY AS i (e, ord)
        CROSS JOIN LATERAL lanekeeper.enqueue(
            enqueue_many.stream, i.e ->> 'session', i.e ->> 'event_type', i.e -> 'payload',
            (i.e ->> 'message_id')::uuid, i.e ->> 'dedupe_key',
            coalesce((i.e ->> 'priority')::smallint, 0::smallint),
            coalesce(nullif(i.e -> 'headers', 'null'), '{}')) AS r
        ORDER BY i.ord;
        RETURN;
    END IF;

    FOR v_day IN SELECT DISTINCT d.day FROM unnest(v_days) AS d (day) LOOP
        PERFORM lanekeeper.create_event_partition(v_day);
    END LOOP;
    IF v_prioritised THEN
        PERFORM lanekeeper.remember_priority(p.priority)
        FROM (
            SELECT DISTINCT (i.e ->> 'priority')::smallint AS priority
            FROM jsonb_array_elements(enqueue_many.events) AS i (e)
            WHERE coalesce(i.e ->> 'priority', '0') <> '0'
            ORDER BY 1
        ) AS p;
    END IF;

    -- In the order of the array, which is the order of the result.
    v_salt := uuid_hash_extended(gen_random_uuid(), 0);
    RETURN QUERY
    INSERT INTO lanekeeper.event AS e
        (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
    SELECT v_ids[i.session_ord], v_newest[i.session_ord] + i.nth, v_days[i.session_ord],
           coalesce((i.e ->> 'priority')::smallint, 0::smallint),
           CASE WHEN octet_length(t.payload) <= v_max_bytes THEN octet_length(t.payload)
                ELSE lanekeeper.refuse_size(i.ord, octet_length(t.payload), v_max_bytes) END,
           v_now, lanekeeper.bulk_message_id(v_now, i.ord, v_salt), i.e ->> 'event_type', t.payload,
           nullif(nullif(i.e -> 'headers', '{}'), 'null')
    FROM ROWS FROM (
        jsonb_array_elements(enqueue_many.events), unnest(v_session_ords), unnest(v_nths)
    ) WITH ORDINALITY AS i (e, session_ord, nth, ord)
    -- OFFSET 0: rendered once.
    CROSS JOIN LATERAL (SELECT (i.e -> 'payload')::text AS payload OFFSET 0) AS t
    RETURNING e.message_id, e.seq, false;
    IF v_followed THEN
        PERFORM lanekeeper.wake_followers(v_stream_id, v_ids);
    END IF;

    -- As in the single call: only where some lane may need a ready entry are subscriptions read.
    IF v_bare IS NULL AND NOT v_prioritised AND NOT EXISTS (
        SELECT FROM unnest(v_ids, v_newest, v_priorities) AS u (session_id, newest, priority)
        CROSS JOIN LATERAL (
            SELECT l.lane_id, l.plain FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0
        ) AS l
        CROSS JOIN LATERAL (
            SELECT greatest(p.cursor, p.sent) AS cursor, p.parked_at FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
            ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE p.parked_at IS NULL
          AND (p.cursor >= u.newest OR u.priority < 0 OR NOT l.plain AND u.newest - p.cursor < lanekeeper.filter_look_back()))
    THEN
        RETURN;
    END IF;
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session, day, progress_ctid)
    SELECT l.route, a.priority, clock_timestamp(), l.lane_id, u.session_id, v_names[a.session_ord],
           CASE WHEN p.settled >= u.newest THEN v_days[a.session_ord] END, p.progress_ctid
    FROM (
        SELECT i.session_ord, max(i.priority) AS priority, array_agg(DISTINCT i.event_type) AS types, count(*) AS events
        FROM (
            SELECT i.session_ord, coalesce((i.e ->> 'priority')::smallint, 0::smallint) AS priority,
                   i.e ->> 'event_type' AS event_type
            FROM ROWS FROM (jsonb_array_elements(enqueue_many.events), unnest(v_session_ords)) AS i (e, session_ord)
            OFFSET 0
        ) AS i
        GROUP BY i.session_ord
    ) AS a
    CROSS JOIN LATERAL (
        SELECT v_ids[a.session_ord] AS session_id, v_newest[a.session_ord] AS newest, v_priorities[a.session_ord] AS priority OFFSET 0
    ) AS u
    CROSS JOIN LATERAL (
        SELECT l.lane_id, l.route, l.subscription_id, l.plain FROM lanekeeper.lane AS l
        WHERE l.session_id = u.session_id OFFSET 0
    ) AS l
    CROSS JOIN LATERAL (
        SELECT s.events FROM lanekeeper.subscription AS s
        WHERE s.subscription_id = l.subscription_id AND s.removed_at IS NULL OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT greatest(p.cursor, p.sent) AS cursor, p.cursor AS settled, p.cursor_day, p.parked_at, p.ctid AS progress_ctid
        FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
        ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE p.parked_at IS NULL AND (u.session_id = ANY (v_bare) OR CASE
        WHEN l.plain OR s.events IS NULL THEN
            p.cursor >= u.newest OR a.priority > u.priority
        WHEN s.events && a.types THEN
            a.priority > u.priority
            OR u.newest - p.cursor < lanekeeper.filter_look_back() AND (
                p.cursor >= u.newest
                OR NOT lanekeeper.has_matching(u.session_id, p.cursor, p.cursor_day, u.newest, s.events))
        ELSE u.newest - p.cursor < lanekeeper.filter_look_back()
             AND u.newest + a.events - p.cursor >= lanekeeper.filter_look_back()
    END);
    IF FOUND THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;
