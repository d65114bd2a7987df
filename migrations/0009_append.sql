-- Appending with fewer statements, relations and expressions: what a transaction of its own pays for is
-- how much of the backend it has to touch. Same signatures, SQLSTATEs and results as in 0002_append.sql;
-- the payload is rendered once, and tokens carry their session.
-- What was measured: docs/performance.md, "Where the time goes".

-- A UUIDv7 of the milliseconds and of a random UUID's last 74 bits. PostgreSQL has a function for it from
-- 18 on only.
CREATE FUNCTION lanekeeper.message_id(p_at timestamptz, p_random uuid) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN ('0' || to_hex((date_part('epoch', p_at) * 1000)::bigint) || '7' || substr(p_random::text, 16))::uuid;

-- The same for the many ids of one call, 2 µs less each: 12 bits of the place in the call, and 62 of a hash
-- of it under a random salt.
CREATE FUNCTION lanekeeper.message_id(p_at timestamptz, p_place bigint, p_salt bigint) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN ('0' || to_hex(((date_part('epoch', p_at) * 1000)::bigint << 16) | 28672 | (p_place & 4095))
            || to_hex((hashint8extended(p_place, p_salt) & 4611686018427387903) | -9223372036854775808))::uuid;

-- Whether every event may wake the lane. True where its subscription had no filter when the lane was made,
-- and never set again: an append then need not read the subscription to know that a lane that is behind has
-- a token. An append wakes such a lane for events that a later filter leaves out too, so that its cursor is
-- never behind without one; `apply` makes the lanes of a subscription that got a filter ordinary ones.
-- Lanes of before this migration are false. Last of all, because of its lock: see the end.

-- Adds the lanes that sessions lack since subscriptions were added to their stream. The caller
-- holds the append locks. `newest` is each session's newest seq, 0 where it has none; a lane that
-- starts at the earliest event of a session that has some gets its token here.
-- The ids are drawn first, so that nothing is joined with what was inserted.
CREATE OR REPLACE FUNCTION lanekeeper.create_lanes(
    session_ids bigint[], newest bigint[], p_stream_id int, p_lanes_version bigint, today date
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH lacking AS MATERIALIZED (
        SELECT u.session_id, u.newest, s.subscription_id, s.start_from, s.plain
        FROM unnest(session_ids, newest) AS u (session_id, newest)
        CROSS JOIN LATERAL (
            SELECT s.subscription_id, s.start_from, s.events IS NULL AS plain FROM lanekeeper.subscription AS s
            WHERE s.stream_id = p_stream_id AND s.removed_at IS NULL
              AND NOT EXISTS (
                  SELECT FROM lanekeeper.lane AS l
                  -- + 0: the index of the subscription's lanes is no way to one of them. A plan that was
                  -- made while there were none took it, and read all lanes at each new session.
                  WHERE l.session_id = u.session_id AND l.subscription_id + 0 = s.subscription_id)
        ) AS s
    ), wanted AS MATERIALIZED (
        SELECT w.session_id, w.newest, w.subscription_id, w.start_from, w.plain,
               nextval('lanekeeper.lane_lane_id_seq') AS lane_id
        FROM lacking AS w
    ), added AS (
        INSERT INTO lanekeeper.lane (lane_id, session_id, subscription_id, route, plain) OVERRIDING SYSTEM VALUE
        SELECT w.lane_id, w.session_id, w.subscription_id, w.subscription_id, w.plain FROM wanted AS w
        -- Under the append lock there is a conflict only where the snapshot is older than the lock: that is
        -- raised as a serialization failure.
        ON CONFLICT DO NOTHING
    ), started AS (
        INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day)
        SELECT w.lane_id, 0,
               CASE WHEN w.start_from = 'latest' THEN w.newest ELSE 0 END,
               CASE WHEN w.start_from = 'latest' OR w.newest = 0 THEN today ELSE '2000-01-01'::date END
        FROM wanted AS w
    )
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT w.subscription_id, 0, clock_timestamp(), w.lane_id
    FROM wanted AS w
    WHERE w.start_from = 'earliest' AND w.newest > 0;

    UPDATE lanekeeper.session AS s SET lanes_version = p_lanes_version
    WHERE s.session_id = ANY (session_ids) AND s.lanes_version <> p_lanes_version;
END
$$;

-- Tomorrow's partition, by whichever append of the day's last hour comes to a session for the first time
-- that day, where no worker is there to make it: made after midnight, it would hold up every producer until
-- the transaction that made it ends. Never waits, and does nothing while somebody else is at it.
CREATE FUNCTION lanekeeper.create_event_partition_ahead(p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms'
AS $$
DECLARE
    v_tomorrow date := (p_now AT TIME ZONE 'UTC')::date + 1;
BEGIN
    IF date_part('hour', p_now AT TIME ZONE 'UTC') = 23
       AND to_regclass('lanekeeper.event_' || to_char(v_tomorrow, 'YYYYMMDD')) IS NULL
       AND pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(1)) THEN
        BEGIN
            PERFORM lanekeeper.create_event_partition(v_tomorrow);
        EXCEPTION WHEN lock_not_available THEN
            -- Somebody has the log locked: the next append makes it, or a worker.
            NULL;
        END;
    END IF;
END
$$;

-- Why an element of a bulk call is too large, as the error that says so.
CREATE FUNCTION lanekeeper.refuse_size(p_ord bigint, p_size int, p_max_bytes int) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LK005',
        MESSAGE = format('the payload of event %s of the array has %s bytes and the stream takes at most %s: nothing was enqueued',
                         p_ord, p_size, p_max_bytes),
        HINT = 'Store the large part elsewhere and send a reference, or raise max_payload_bytes of the stream.';
END
$$;

-- Refuses what no append takes, as the error that says why. Sizes in bytes. SQLSTATEs: LK003, LK005, LK006.
CREATE FUNCTION lanekeeper.check_event(
    p_stream text, p_session text, p_event_type text, p_payload jsonb, p_dedupe_key text, p_priority smallint,
    p_headers jsonb, p_size int
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_max_bytes int;
BEGIN
    SELECT s.max_payload_bytes INTO v_max_bytes FROM lanekeeper.stream AS s WHERE s.name = p_stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(p_stream);
    END IF;
    IF p_payload IS NULL OR coalesce(p_session, '') = '' OR coalesce(p_event_type, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'session, event_type and payload must not be null or empty: nothing was enqueued',
            HINT = 'A JSON null is a payload too: pass ''null''::jsonb.';
    END IF;
    IF octet_length(p_session) > 512 OR octet_length(p_event_type) > 200
       OR octet_length(p_dedupe_key) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'session takes at most 512 bytes, event_type 200 and dedupe_key 1 to 512: nothing was enqueued';
    END IF;
    IF p_priority IS NULL OR p_priority NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'priority must be between -100 and 100: nothing was enqueued';
    END IF;
    IF jsonb_typeof(p_headers) <> 'object' OR octet_length(p_headers::text) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'headers must be a JSON object of at most 65536 bytes: nothing was enqueued';
    END IF;
    IF p_size > v_max_bytes THEN
        RAISE EXCEPTION USING ERRCODE = 'LK005',
            MESSAGE = format('the payload has %s bytes and stream %L takes at most %s: nothing was enqueued',
                             p_size, p_stream, v_max_bytes),
            HINT = 'Store the large part elsewhere and send a reference, or raise max_payload_bytes of the stream.';
    END IF;
END
$$;

-- Finds or creates the session, takes its append lock and adds the lanes that it lacks. For what an
-- append does not meet every time: a new session, and a session after a subscription was added.
CREATE FUNCTION lanekeeper.open_session(IN p_stream text, IN p_session text, OUT session_id bigint, OUT locked_at timestamptz)
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
        INSERT INTO lanekeeper.session AS s (stream_id, name, lanes_version)
        VALUES (v_stream_id, p_session, v_stream_lanes)
        ON CONFLICT DO NOTHING
        RETURNING s.session_id INTO session_id;
        v_created := FOUND;
        IF NOT v_created THEN
            SELECT s.session_id, s.lanes_version INTO session_id, v_session_lanes
            FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = p_session;
        END IF;
    END IF;

    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(session_id));
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

-- Remembers what a producer chose by name. NULL where it is new, else what the first call got.
CREATE FUNCTION lanekeeper.remember_keys(
    IN p_stream text, IN p_session_id bigint, IN p_message_id uuid, IN p_given_id uuid, IN p_dedupe_key text, IN p_seq bigint,
    OUT message_id uuid, OUT seq bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id int;
    v_inserted  int;
BEGIN
    SELECT t.stream_id INTO v_stream_id FROM lanekeeper.stream AS t WHERE t.name = p_stream;
    INSERT INTO lanekeeper.dedupe (stream_id, key, session_id, seq, message_id)
    SELECT v_stream_id, k.key, p_session_id, p_seq, p_message_id
    FROM (VALUES ('id:' || p_given_id::text), ('key:' || p_dedupe_key)) AS k (key)
    WHERE k.key IS NOT NULL
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
    IF v_inserted < num_nonnulls(p_given_id, p_dedupe_key) THEN
        DELETE FROM lanekeeper.dedupe AS d
        WHERE d.stream_id = v_stream_id AND d.session_id = p_session_id AND d.seq = p_seq
          AND d.key IN ('id:' || p_given_id::text, 'key:' || p_dedupe_key);
        SELECT d.message_id, d.seq INTO message_id, seq
        FROM lanekeeper.dedupe AS d
        WHERE d.stream_id = v_stream_id AND d.key IN ('id:' || p_given_id::text, 'key:' || p_dedupe_key)
        ORDER BY d.key LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = 'the key was forgotten at this moment: nothing was enqueued, try again';
        END IF;
    END IF;
END
$$;

-- Appends one event in the caller's transaction. SQLSTATEs: LK003 unknown stream, LK005 payload
-- too large, LK006 invalid argument; 40001 in REPEATABLE READ and SERIALIZABLE, where another
-- transaction appended to the session after the snapshot.
--
-- Three statements where nothing is out of the ordinary: the session and its lock; the newest event and
-- whether a lane may be idle; the event. Every further statement and expression costs each transaction
-- microseconds to set up, so whatever is rare stands in functions of its own.
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
AS $$
#variable_conflict use_column
DECLARE
    v_session_id    bigint;
    -- What the log keeps, and whose size counts: jsonb may be far smaller (1e131071) or compressed.
    v_payload       text := enqueue.payload::text;
    v_size          int := octet_length(v_payload);
    v_now           timestamptz;
    v_today         date;
    v_day           date;
    v_prev_priority smallint;
    -- Some lane may have nobody to notice the event.
    v_look          boolean;
    -- The newest event is of a day before today, or there is none.
    v_other_day     boolean;
    -- Nothing is left of the session in the log: a lane may be behind its last seq, and idle.
    v_bare          boolean;
    -- The snapshot may be older than the append lock, and miss what was appended before it.
    v_fixed         boolean;
    -- `message_id` becomes the result: what the producer gave is kept apart from it.
    v_given_id      uuid;
    v_first_id      uuid;
    v_first_seq     bigint;
BEGIN
    -- The lock is the last thing that happens to the one row. What is read here may be older than it, and
    -- may be: a session is never renamed or removed, whoever takes its lanes away waits until no snapshot
    -- is as old as this one, and lanes that it got meanwhile are read below.
    -- OFFSET 0, here and below, leaves no other plan than a look-up by the whole key: the plan may have
    -- been made while the tables were empty, and is kept.
    SELECT s.session_id, enqueue.message_id,
           CASE WHEN pg_advisory_xact_lock(lanekeeper.append_lock(s.session_id)) IS NOT NULL THEN clock_timestamp() END,
           (clock_timestamp() AT TIME ZONE 'UTC')::date
    INTO v_session_id, v_given_id, v_now, v_today
    FROM lanekeeper.stream AS t
    CROSS JOIN LATERAL (
        SELECT s.session_id, s.lanes_version FROM lanekeeper.session AS s
        WHERE s.stream_id = t.stream_id AND s.name = enqueue.session OFFSET 0
    ) AS s
    WHERE t.name = enqueue.stream AND v_size <= t.max_payload_bytes AND s.lanes_version = t.lanes_version;
    IF (v_session_id > 0 AND octet_length(enqueue.event_type) <= 200 AND enqueue.event_type <> ''
        AND enqueue.priority = 0 AND enqueue.headers = '{}') IS NOT TRUE THEN
        IF (v_session_id > 0 AND octet_length(enqueue.event_type) BETWEEN 1 AND 200 AND enqueue.priority BETWEEN -100 AND 100
            AND jsonb_typeof(enqueue.headers) = 'object' AND octet_length(enqueue.headers::text) <= 65536) IS NOT TRUE THEN
            PERFORM lanekeeper.check_event(enqueue.stream, enqueue.session, enqueue.event_type, enqueue.payload,
                enqueue.dedupe_key, enqueue.priority, enqueue.headers, v_size);
        END IF;
        IF v_session_id IS NULL THEN
            v_given_id := message_id;
            SELECT o.session_id, o.locked_at INTO v_session_id, v_now
            FROM lanekeeper.open_session(enqueue.stream, enqueue.session) AS o;
            v_today := (v_now AT TIME ZONE 'UTC')::date;
        END IF;
    END IF;

    -- From here on, in READ COMMITTED, every statement sees all earlier appends of the session. A lane
    -- that is not plain may be idle with filtered events behind its cursor: it is looked at below.
    SELECT e.seq + 1, e.day, e.priority, false,
           coalesce(v_given_id, lanekeeper.message_id(v_now, gen_random_uuid())),
           EXISTS (
               SELECT FROM lanekeeper.lane AS l
               WHERE l.session_id = v_session_id AND (
                   SELECT p.parked_at IS NULL AND (p.cursor >= e.seq OR enqueue.priority > e.priority
                          OR NOT l.plain AND e.seq - p.cursor < lanekeeper.filter_look_back())
                   FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
                   ORDER BY p.version DESC LIMIT 1))
    INTO seq, v_day, v_prev_priority, duplicate, message_id, v_look
    FROM lanekeeper.event AS e
    WHERE e.session_id = v_session_id AND e.day >= v_today
    ORDER BY e.seq DESC LIMIT 1;

    IF seq IS NULL OR v_given_id IS NOT NULL OR enqueue.dedupe_key IS NOT NULL
       OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        IF octet_length(enqueue.dedupe_key) NOT BETWEEN 1 AND 512 THEN
            PERFORM lanekeeper.check_event(enqueue.stream, enqueue.session, enqueue.event_type, enqueue.payload,
                enqueue.dedupe_key, enqueue.priority, enqueue.headers, v_size);
        END IF;
        v_fixed := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
        v_other_day := seq IS NULL;
        IF v_other_day THEN
            -- The session's first event, or its first of the day.
            SELECT n.seq + 1, n.day, n.priority, false, true,
                   coalesce(v_given_id, lanekeeper.message_id(v_now, gen_random_uuid()))
            INTO seq, v_day, v_prev_priority, duplicate, v_look, message_id
            FROM lanekeeper.newest_event(v_session_id, v_today) AS n;
            v_bare := seq > 1 AND NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = v_session_id);
        END IF;
        IF v_fixed THEN
            PERFORM lanekeeper.refuse_stale_snapshot(v_session_id, seq, v_day, v_today);
            v_look := true;
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
        IF v_other_day THEN
            v_day := greatest(v_day, v_today);
            IF to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NULL THEN
                PERFORM lanekeeper.create_event_partition(v_day);
            END IF;
            PERFORM lanekeeper.create_event_partition_ahead(v_now);
        END IF;
    END IF;

    IF enqueue.priority <> 0 THEN
        PERFORM lanekeeper.remember_priority(enqueue.priority);
    END IF;
    INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
    VALUES (v_session_id, enqueue.seq, v_day, enqueue.priority, v_size, v_now,
            message_id, enqueue.event_type, v_payload, nullif(enqueue.headers, '{}'));

    IF v_look THEN
        -- A token for each lane that has nobody to notice the event: see ARCHITECTURE.md, "Idle lanes".
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session)
        SELECT l.route, enqueue.priority, v_now, l.lane_id, v_session_id, enqueue.session
        FROM lanekeeper.lane AS l
        CROSS JOIN LATERAL (
            SELECT s.events FROM lanekeeper.subscription AS s
            WHERE s.subscription_id = l.subscription_id AND s.removed_at IS NULL OFFSET 0
        ) AS s
        CROSS JOIN LATERAL (
            SELECT p.cursor, p.cursor_day, p.parked_at
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
        IF FOUND AND NOT pg_try_advisory_xact_lock_shared(lanekeeper.doorbell_lock())
           AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
            PERFORM pg_notify('lanekeeper', '');
        END IF;
    END IF;
END
$$;

-- Appends many events in the caller's transaction, in the order of the array within each session.
-- Locks all sessions in the order of their names first: bulk calls never deadlock each other.
--
-- What is needed of an event more than once is taken out of the array once, into arrays of its own that are
-- walked beside it: nothing is joined by name, and no payload is sorted or kept aside.
CREATE OR REPLACE FUNCTION lanekeeper.enqueue_many(stream text, events jsonb)
RETURNS TABLE (message_id uuid, seq bigint, duplicate boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id     int;
    v_stream_lanes  bigint;
    v_max_bytes     int;
    v_now           timestamptz;
    v_today         date;
    v_salt          bigint;
    v_bad           bigint;
    v_one_by_one    boolean;
    v_prioritised   boolean;
    -- Of each event: its session's place in v_names, and its number among that session's events.
    v_places        int[];
    v_nths          int[];
    -- Of each session, in the order of names. v_before: as found at first, NULL where it was not there.
    v_names         text[];
    v_before        bigint[];
    v_ids           bigint[];
    v_newest        bigint[];
    v_days          date[];
    v_priorities    smallint[];
    -- This call created all sessions that were not there: nobody can have appended to them.
    v_created       boolean := false;
    -- Some session stands at another version than the stream.
    v_stale         boolean;
    v_lack          bigint[];
    -- Sessions of which nothing is left in the log: a lane may be behind their last seq, and idle.
    v_bare          bigint[];
    v_lack_newest   bigint[];
    v_day           date;
BEGIN
    SELECT s.stream_id, s.lanes_version, s.max_payload_bytes INTO v_stream_id, v_stream_lanes, v_max_bytes
    FROM lanekeeper.stream AS s WHERE s.name = enqueue_many.stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(enqueue_many.stream);
    END IF;
    IF jsonb_typeof(enqueue_many.events) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'events must be a JSON array: nothing was enqueued';
    END IF;

    SELECT min(i.ord) FILTER (WHERE i.bad),
           bool_or(i.named) OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'),
           bool_or(i.prioritised),
           -- Each in an order of its own: from PostgreSQL 16 on, one aggregate's order becomes that of all.
           array_agg(i.place ORDER BY i.ord), array_agg(i.nth ORDER BY i.ord),
           array_agg(i.name ORDER BY i.place) FILTER (WHERE i.nth = 1)
    INTO v_bad, v_one_by_one, v_prioritised, v_places, v_nths, v_names
    FROM (
        SELECT i.ord, i.name, i.bad, i.named, i.prioritised,
               dense_rank() OVER (ORDER BY i.name)::int AS place,
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
                       OR coalesce(nullif(jsonb_typeof(i.e -> 'headers'), 'null'), 'object') <> 'object'
                       OR octet_length((i.e -> 'headers')::text) > 65536 AS bad
            FROM jsonb_array_elements(enqueue_many.events) WITH ORDINALITY AS i (e, ord)
            -- Keeps the elements themselves out of the sorts.
            OFFSET 0
        ) AS i
        ORDER BY i.ord
    ) AS i;
    IF v_bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('event %s of the array is not valid: nothing was enqueued', v_bad),
            HINT = 'Each needs session (1 to 512 bytes), event_type (1 to 200) and payload; headers must be an object of at most 65536 bytes, priority between -100 and 100.';
    END IF;
    IF v_names IS NULL THEN
        RETURN;
    END IF;
    -- All creations come before the first lock, each in the order of names: whoever waits for a creation
    -- holds no lock that its creator could want.
    LOOP
        SELECT array_agg(s.session_id ORDER BY n.ord), coalesce(bool_or(s.lanes_version <> v_stream_lanes), false)
        INTO v_ids, v_stale
        FROM unnest(v_names) WITH ORDINALITY AS n (name, ord)
        LEFT JOIN LATERAL (
            SELECT s.session_id, s.lanes_version FROM lanekeeper.session AS s
            WHERE s.stream_id = v_stream_id AND s.name = n.name OFFSET 0
        ) AS s ON true;
        v_before := coalesce(v_before, v_ids);
        EXIT WHEN array_position(v_ids, NULL) IS NULL;
        WITH created AS (
            INSERT INTO lanekeeper.session (stream_id, name, lanes_version)
            SELECT v_stream_id, n.name, v_stream_lanes
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
    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(u.session_id)) FROM unnest(v_ids) AS u (session_id);

    -- From here on, in READ COMMITTED, every statement sees all earlier appends of these sessions.
    v_now := clock_timestamp();
    v_today := (v_now AT TIME ZONE 'UTC')::date;
    SELECT array_agg(n.seq ORDER BY u.ord), array_agg(n.day ORDER BY u.ord), array_agg(n.priority ORDER BY u.ord)
    INTO v_newest, v_days, v_priorities
    FROM unnest(v_ids) WITH ORDINALITY AS u (session_id, ord)
    LEFT JOIN LATERAL (
        SELECT e.seq, e.day, e.priority FROM lanekeeper.event AS e
        WHERE e.session_id = u.session_id AND e.day >= v_today
        ORDER BY e.seq DESC LIMIT 1
    ) AS n ON true;
    IF array_position(v_newest, NULL) IS NOT NULL THEN
        SELECT array_agg(coalesce(u.seq, o.seq, 0) ORDER BY u.ord), array_agg(coalesce(u.day, v_today) ORDER BY u.ord),
               array_agg(coalesce(u.priority, o.priority, 0) ORDER BY u.ord)
        INTO v_newest, v_days, v_priorities
        FROM unnest(v_ids, v_before, v_newest, v_days, v_priorities) WITH ORDINALITY
             AS u (session_id, before, seq, day, priority, ord)
        -- OFFSET 0 keeps the condition below the call.
        LEFT JOIN LATERAL (
            SELECT o.seq, o.priority FROM lanekeeper.newest_event(u.session_id, v_today) AS o
            WHERE u.seq IS NULL AND (u.before IS NOT NULL OR NOT v_created) OFFSET 0
        ) AS o ON true;
        SELECT array_agg(u.session_id) INTO v_bare
        FROM unnest(v_ids, v_newest) AS u (session_id, newest)
        WHERE u.newest > 0
          AND NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = u.session_id OFFSET 0);
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
    SELECT v_ids[i.place], v_newest[i.place] + i.nth, v_days[i.place],
           coalesce((i.e ->> 'priority')::smallint, 0::smallint),
           CASE WHEN octet_length(t.payload) <= v_max_bytes THEN octet_length(t.payload)
                ELSE lanekeeper.refuse_size(i.ord, octet_length(t.payload), v_max_bytes) END,
           v_now, lanekeeper.message_id(v_now, i.ord, v_salt), i.e ->> 'event_type', t.payload,
           nullif(nullif(i.e -> 'headers', '{}'), 'null')
    FROM ROWS FROM (
        jsonb_array_elements(enqueue_many.events), unnest(v_places), unnest(v_nths)
    ) WITH ORDINALITY AS i (e, place, nth, ord)
    -- OFFSET 0: rendered once.
    CROSS JOIN LATERAL (SELECT (i.e -> 'payload')::text AS payload OFFSET 0) AS t
    RETURNING e.message_id, e.seq, false;

    -- As in the single call: lanes that may have nobody to notice the events are looked at.
    IF v_bare IS NULL AND NOT v_prioritised AND NOT EXISTS (
        SELECT FROM unnest(v_ids, v_newest, v_priorities) AS u (session_id, newest, priority)
        CROSS JOIN LATERAL (
            SELECT l.lane_id, l.plain FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0
        ) AS l
        CROSS JOIN LATERAL (
            SELECT p.cursor, p.parked_at FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
            ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE p.parked_at IS NULL
          AND (p.cursor >= u.newest OR u.priority < 0 OR NOT l.plain AND u.newest - p.cursor < lanekeeper.filter_look_back()))
    THEN
        RETURN;
    END IF;
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session)
    SELECT l.route, a.priority, v_now, l.lane_id, u.session_id, v_names[a.place]
    FROM (
        SELECT i.place, max(i.priority) AS priority, array_agg(DISTINCT i.event_type) AS types, count(*) AS events
        FROM (
            SELECT i.place, coalesce((i.e ->> 'priority')::smallint, 0::smallint) AS priority,
                   i.e ->> 'event_type' AS event_type
            FROM ROWS FROM (jsonb_array_elements(enqueue_many.events), unnest(v_places)) AS i (e, place)
            OFFSET 0
        ) AS i
        GROUP BY i.place
    ) AS a
    CROSS JOIN LATERAL (
        SELECT v_ids[a.place] AS session_id, v_newest[a.place] AS newest, v_priorities[a.place] AS priority OFFSET 0
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
        SELECT p.cursor, p.cursor_day, p.parked_at
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

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lanekeeper FROM PUBLIC;

-- The lock of what follows is asked for in short turns, over half a minute: producers queue behind a
-- request that waits. Where a transaction that has appended stays open for longer, migrate again after it.
DO $$
BEGIN
    FOR turn IN 1 .. 100 LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            LOCK TABLE lanekeeper.lane IN ACCESS EXCLUSIVE MODE;
            SET LOCAL lock_timeout = 0;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF turn = 100 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.2);
        END;
    END LOOP;
END
$$;
ALTER TABLE lanekeeper.lane ADD COLUMN plain boolean NOT NULL DEFAULT false;
