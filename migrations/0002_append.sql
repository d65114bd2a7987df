-- Appending: the only code that writes events. See ARCHITECTURE.md, "Appending".
--
-- Advisory lock keys are 16 bits 'LK', 8 bits of kind, 40 bits of id, so that other users of
-- advisory locks in the same database do not collide. Kinds: 1 append (session), 2 lane,
-- 3 lane connection, 4 doorbell, 5 migration, 6 housekeeping, 7 apply.

CREATE FUNCTION lanekeeper.append_lock(session_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497488869647450112 + session_id;

CREATE FUNCTION lanekeeper.lane_lock(lane_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497489969159077888 + lane_id;

CREATE FUNCTION lanekeeper.connection_lock(connection_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497491068670705664 + connection_id;

CREATE FUNCTION lanekeeper.doorbell_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497492168182333440;

CREATE FUNCTION lanekeeper.housekeeping_lock(task bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497494367205588992 + task;

-- The partition of one UTC day. Attaching takes SHARE UPDATE EXCLUSIVE on the log: appends and
-- reads go on meanwhile. Returns false where it exists already.
CREATE FUNCTION lanekeeper.create_event_partition(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_name text := 'event_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass('lanekeeper.' || v_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(lanekeeper.housekeeping_lock(1));
    IF to_regclass('lanekeeper.' || v_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE lanekeeper.%I (LIKE lanekeeper.event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name);
    EXECUTE format('ALTER TABLE lanekeeper.event ATTACH PARTITION lanekeeper.%I FOR VALUES FROM (%L) TO (%L)',
        v_name, day, day + 1);
    RETURN true;
END
$$;

-- Today's partition, and from an hour before midnight on tomorrow's: every append, fetch and settlement
-- looks into all partitions from its lane's day on, so that none is made earlier than it is needed.
CREATE FUNCTION lanekeeper.create_event_partitions() RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*) FILTER (WHERE lanekeeper.create_event_partition(d.day))
    FROM (
        SELECT DISTINCT ((clock_timestamp() + h * interval '1 hour') AT TIME ZONE 'UTC')::date AS day
        FROM generate_series(0, 1) AS h
    ) AS d
$$;

SELECT lanekeeper.create_event_partitions();

-- The newest event of a session, the newest day first; after retention, what session_tail kept.
-- Index: event's primary key, backwards. At most one row of each partition is touched.
CREATE FUNCTION lanekeeper.newest_event(
    IN p_session_id bigint, IN p_today date,
    OUT seq bigint, OUT day date, OUT priority smallint
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tail bigint;
BEGIN
    SELECT e.seq, e.day, e.priority INTO seq, day, priority
    FROM lanekeeper.event AS e
    WHERE e.session_id = p_session_id
    ORDER BY e.seq DESC LIMIT 1;
    SELECT t.seq INTO v_tail FROM lanekeeper.session_tail AS t
    WHERE t.session_id = p_session_id ORDER BY t.seq DESC LIMIT 1;
    IF seq IS NULL OR v_tail > seq THEN
        seq := coalesce(v_tail, 0);
        day := p_today;
        priority := 0;
    END IF;
END
$$;

-- Adds the lanes that sessions lack since subscriptions were added to their stream. The caller
-- holds the append locks. `newest` is each session's newest seq, 0 where it has none; a lane that
-- starts at the earliest event of a session that has some gets its token here.
CREATE FUNCTION lanekeeper.create_lanes(
    session_ids bigint[], newest bigint[], p_stream_id int, p_lanes_version bigint, today date
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT u.session_id, u.newest, s.subscription_id, s.start_from
        FROM unnest(session_ids, newest) AS u (session_id, newest)
        CROSS JOIN lanekeeper.subscription AS s
        WHERE s.stream_id = p_stream_id AND s.removed_at IS NULL
          AND NOT EXISTS (
              SELECT FROM lanekeeper.lane AS l
              WHERE l.session_id = u.session_id AND l.subscription_id = s.subscription_id)
        ORDER BY u.session_id
    ), added AS (
        INSERT INTO lanekeeper.lane (session_id, subscription_id, route)
        SELECT w.session_id, w.subscription_id, w.subscription_id FROM wanted AS w
        -- Under the append lock a conflict means a snapshot older than the lock: it is raised as
        -- a serialization failure.
        ON CONFLICT DO NOTHING
        RETURNING lane_id, session_id, subscription_id
    ), started AS (
        INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day)
        SELECT a.lane_id, 0,
               CASE WHEN w.start_from = 'latest' THEN w.newest ELSE 0 END,
               CASE WHEN w.start_from = 'latest' OR w.newest = 0 THEN today ELSE '2000-01-01'::date END
        FROM added AS a
        JOIN wanted AS w ON w.session_id = a.session_id AND w.subscription_id = a.subscription_id
    )
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT a.subscription_id, 0, clock_timestamp(), a.lane_id
    FROM added AS a
    JOIN wanted AS w ON w.session_id = a.session_id AND w.subscription_id = a.subscription_id
    WHERE w.start_from = 'earliest' AND w.newest > 0;

    UPDATE lanekeeper.session AS s SET lanes_version = p_lanes_version
    WHERE s.session_id = ANY (session_ids) AND s.lanes_version <> p_lanes_version;
END
$$;

-- Wakes idle workers. A producer that gets the doorbell in shared mode knows that nobody waits
-- for it; NOTIFY, which serialises all commits of the server, is for the other case only.
-- `SET lanekeeper.notify = off` leaves it out (a transaction that will be prepared must not
-- notify): workers then find the event at their next poll.
CREATE FUNCTION lanekeeper.ring() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(lanekeeper.doorbell_lock())
       AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('lanekeeper', '');
    END IF;
END
$$;

-- Puts a priority on the list of those in use, which a claim walks from the highest.
CREATE FUNCTION lanekeeper.remember_priority(p_priority smallint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM lanekeeper.priority_level AS l WHERE l.priority = p_priority) THEN
        INSERT INTO lanekeeper.priority_level (priority) VALUES (p_priority) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- How many events a producer looks back to judge whether a filtered lane is idle.
CREATE FUNCTION lanekeeper.filter_look_back() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 64;

-- Whether the log has an event of these types after a cursor and up to `p_newest`. A function, so
-- that an append to lanes without a filter does not start the scans of this one.
-- Index: event's primary key. Rows: at most filter_look_back().
CREATE FUNCTION lanekeeper.has_matching(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_newest bigint, p_types text[]
) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.day >= p_cursor_day
          AND e.seq > p_cursor AND e.seq <= p_newest AND e.event_type = ANY (p_types));
END
$$;

-- The payload's size in bytes, refused where it is over the stream's limit.
CREATE FUNCTION lanekeeper.checked_size(p_ord bigint, p_payload jsonb, p_max_bytes int) RETURNS int
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_size int := octet_length(p_payload::text);
BEGIN
    IF v_size > p_max_bytes THEN
        RAISE EXCEPTION USING ERRCODE = 'LK005',
            MESSAGE = format('the payload of event %s of the array has %s bytes and the stream takes at most %s: nothing was enqueued',
                             p_ord, v_size, p_max_bytes),
            HINT = 'Store the large part elsewhere and send a reference, or raise max_payload_bytes of the stream.';
    END IF;
    RETURN v_size;
END
$$;

-- For REPEATABLE READ and SERIALIZABLE, whose snapshot may be older than the append lock: raises
-- 40001 where somebody appended this seq meanwhile. ON CONFLICT is what looks past the snapshot;
-- the key includes the day, so every day that the unseen event may be in is tried.
CREATE FUNCTION lanekeeper.refuse_stale_snapshot(p_session_id bigint, p_seq bigint, p_newest_day date, p_today date)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_day date := p_newest_day;
BEGIN
    IF p_seq = 1 THEN
        SELECT least((s.created_at AT TIME ZONE 'UTC')::date, p_today) INTO v_day
        FROM lanekeeper.session AS s WHERE s.session_id = p_session_id;
    END IF;
    WHILE v_day <= p_today LOOP
        IF to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NOT NULL THEN
            INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload)
            VALUES (p_session_id, p_seq, v_day, 0, 0, now(), gen_random_uuid(), 'probe', 'null')
            ON CONFLICT DO NOTHING;
            DELETE FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id AND e.seq = p_seq AND e.day = v_day;
        END IF;
        v_day := v_day + 1;
    END LOOP;
END
$$;

-- Why a stream was not found, as the error that all append functions raise.
CREATE FUNCTION lanekeeper.raise_unknown_stream(p_stream text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LK003',
        MESSAGE = format('unknown stream %L: nothing was enqueued', p_stream),
        HINT = 'Streams are: ' || (SELECT string_agg(s.name, ', ' ORDER BY s.name) FROM lanekeeper.stream AS s)
               || '. Add your own with a [stream.NAME] section and `lanekeeper apply`.';
END
$$;

-- Appends one event in the caller's transaction. SQLSTATEs: LK003 unknown stream, LK005 payload
-- too large, LK006 invalid argument; 40001 in REPEATABLE READ and SERIALIZABLE, where another
-- transaction appended to the session after the snapshot.
CREATE FUNCTION lanekeeper.enqueue(
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
    v_stream_id     int;
    v_stream_lanes  bigint;
    v_max_bytes     int;
    v_session_id    bigint;
    v_session_lanes bigint;
    v_created       boolean := false;
    -- As text, which is what leaves Postgres: jsonb may be far smaller (1e131071) or compressed.
    v_size          int := octet_length(enqueue.payload::text);
    v_now           timestamptz;
    v_today         date;
    v_newest        bigint := 0;
    v_day           date;
    -- The newest event is in a partition of today or later, which exists therefore.
    v_current       boolean := false;
    v_prev_priority smallint := 0;
    v_inserted      int;
    -- `message_id` becomes the result: what the producer gave is kept apart from it.
    v_given_id      uuid := message_id;
    -- The snapshot may be older than the append lock, and miss what was appended before it.
    v_fixed         boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
BEGIN
    SELECT s.stream_id, s.lanes_version, s.max_payload_bytes INTO v_stream_id, v_stream_lanes, v_max_bytes
    FROM lanekeeper.stream AS s WHERE s.name = enqueue.stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(enqueue.stream);
    END IF;
    IF enqueue.payload IS NULL OR coalesce(enqueue.session, '') = '' OR coalesce(enqueue.event_type, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'session, event_type and payload must not be null or empty: nothing was enqueued',
            HINT = 'A JSON null is a payload too: pass ''null''::jsonb.';
    END IF;
    IF octet_length(enqueue.session) > 512 OR octet_length(enqueue.event_type) > 200
       OR octet_length(enqueue.dedupe_key) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'session takes at most 512 bytes, event_type 200 and dedupe_key 1 to 512: nothing was enqueued';
    END IF;
    IF enqueue.priority IS NULL OR enqueue.priority NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'priority must be between -100 and 100: nothing was enqueued';
    END IF;
    IF jsonb_typeof(enqueue.headers) <> 'object' OR octet_length(enqueue.headers::text) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'headers must be a JSON object of at most 65536 bytes: nothing was enqueued';
    END IF;
    IF v_size > v_max_bytes THEN
        RAISE EXCEPTION USING ERRCODE = 'LK005',
            MESSAGE = format('the payload has %s bytes and stream %L takes at most %s: nothing was enqueued',
                             v_size, enqueue.stream, v_max_bytes),
            HINT = 'Store the large part elsewhere and send a reference, or raise max_payload_bytes of the stream.';
    END IF;

    SELECT s.session_id, s.lanes_version INTO v_session_id, v_session_lanes
    FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = enqueue.session;
    IF NOT FOUND THEN
        -- Waits for a concurrent creator of the same session.
        INSERT INTO lanekeeper.session AS s (stream_id, name, lanes_version)
        VALUES (v_stream_id, enqueue.session, v_stream_lanes)
        ON CONFLICT DO NOTHING
        RETURNING s.session_id INTO v_session_id;
        v_created := FOUND;
        v_session_lanes := v_stream_lanes;
        IF NOT v_created THEN
            SELECT s.session_id, s.lanes_version INTO v_session_id, v_session_lanes
            FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = enqueue.session;
        END IF;
    END IF;

    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(v_session_id));
    -- From here on, in READ COMMITTED, every statement sees all earlier appends of the session.
    v_now := clock_timestamp();
    v_today := (v_now AT TIME ZONE 'UTC')::date;
    v_day := v_today;

    IF NOT v_created THEN
        SELECT e.seq, e.day, e.priority INTO v_newest, v_day, v_prev_priority
        FROM lanekeeper.event AS e
        WHERE e.session_id = v_session_id AND e.day >= v_today
        ORDER BY e.seq DESC LIMIT 1;
        v_current := FOUND;
        IF NOT v_current THEN
            SELECT n.seq, n.day, n.priority INTO v_newest, v_day, v_prev_priority
            FROM lanekeeper.newest_event(v_session_id, v_today) AS n;
        END IF;
    END IF;
    seq := v_newest + 1;
    duplicate := false;
    -- UUIDv7: PostgreSQL has a function for it from 18 on only.
    message_id := coalesce(v_given_id, encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM v_now) * 1000)::bigint) FROM 3) FROM 1 FOR 6
    ), 52, 1), 53, 1), 'hex')::uuid);

    IF v_fixed THEN
        PERFORM lanekeeper.refuse_stale_snapshot(v_session_id, seq, v_day, v_today);
    END IF;
    -- Before a duplicate may end the call: the session stands at the stream's version from now on.
    IF v_created OR v_session_lanes <> v_stream_lanes THEN
        PERFORM lanekeeper.create_lanes(ARRAY[v_session_id], ARRAY[v_newest], v_stream_id, v_stream_lanes, v_today);
    END IF;
    -- Only ids that the producer chose can come twice.
    IF v_given_id IS NOT NULL OR enqueue.dedupe_key IS NOT NULL THEN
        INSERT INTO lanekeeper.dedupe (stream_id, key, session_id, seq, message_id)
        SELECT v_stream_id, k.key, v_session_id, v_newest + 1, message_id
        FROM (VALUES ('id:' || v_given_id::text), ('key:' || enqueue.dedupe_key)) AS k (key)
        WHERE k.key IS NOT NULL
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS v_inserted = ROW_COUNT;
        IF v_inserted < num_nonnulls(v_given_id, enqueue.dedupe_key) THEN
            DELETE FROM lanekeeper.dedupe AS d
            WHERE d.stream_id = v_stream_id AND d.session_id = v_session_id AND d.seq = v_newest + 1
              AND d.key IN ('id:' || v_given_id::text, 'key:' || enqueue.dedupe_key);
            SELECT d.message_id, d.seq, true INTO message_id, seq, duplicate
            FROM lanekeeper.dedupe AS d
            WHERE d.stream_id = v_stream_id
              AND d.key IN ('id:' || v_given_id::text, 'key:' || enqueue.dedupe_key)
            ORDER BY d.key LIMIT 1;
            IF NOT FOUND THEN
                RAISE EXCEPTION USING ERRCODE = '40001',
                    MESSAGE = 'the key was forgotten at this moment: nothing was enqueued, try again';
            END IF;
            RETURN;
        END IF;
    END IF;

    IF enqueue.priority <> 0 THEN
        PERFORM lanekeeper.remember_priority(enqueue.priority);
    END IF;
    v_day := greatest(v_day, v_today);
    IF NOT v_current AND to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NULL THEN
        PERFORM lanekeeper.create_event_partition(v_day);
    END IF;

    INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
    VALUES (v_session_id, v_newest + 1, v_day, enqueue.priority, v_size, v_now,
            message_id, enqueue.event_type, enqueue.payload, nullif(enqueue.headers, '{}'));

    -- A token for each lane that has nobody to notice the event: see ARCHITECTURE.md, "Idle lanes".
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT l.route, enqueue.priority, v_now, l.lane_id
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    CROSS JOIN LATERAL (
        SELECT p.cursor, p.cursor_day, p.parked_at
        FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
        ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE l.session_id = v_session_id AND s.removed_at IS NULL
      AND (v_fixed OR p.parked_at IS NULL AND CASE
          WHEN s.events IS NULL THEN
              p.cursor >= v_newest OR enqueue.priority > v_prev_priority
          WHEN enqueue.event_type = ANY (s.events) THEN
              enqueue.priority > v_prev_priority
              OR v_newest - p.cursor < lanekeeper.filter_look_back() AND (
                  p.cursor >= v_newest
                  OR NOT lanekeeper.has_matching(l.session_id, p.cursor, p.cursor_day, v_newest, s.events))
          -- A long run of filtered events wakes the lane once, so that its cursor passes them.
          ELSE v_newest - p.cursor < lanekeeper.filter_look_back()
               AND v_newest + 1 - p.cursor >= lanekeeper.filter_look_back()
      END);
    IF FOUND THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;

-- Appends many events in the caller's transaction, in the order of the array within each session.
-- Locks all sessions in the order of their names first: bulk calls never deadlock each other.
CREATE FUNCTION lanekeeper.enqueue_many(stream text, events jsonb)
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
    v_bad           bigint;
    v_one_by_one    boolean;
    v_names         text[];
    v_created       bigint[];
    v_ids           bigint[];
    v_newest        bigint[];
    v_days          date[];
    v_priorities    smallint[];
    v_lack          bigint[];
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

    SELECT min(i.ord) FILTER (WHERE jsonb_typeof(i.e) <> 'object'
               OR coalesce(octet_length(i.e ->> 'session'), 0) NOT BETWEEN 1 AND 512
               OR coalesce(octet_length(i.e ->> 'event_type'), 0) NOT BETWEEN 1 AND 200
               OR octet_length(i.e ->> 'dedupe_key') NOT BETWEEN 1 AND 512
               OR NOT i.e ? 'payload'
               OR coalesce((i.e ->> 'priority')::numeric, 0) NOT BETWEEN -100 AND 100
               OR coalesce(nullif(jsonb_typeof(i.e -> 'headers'), 'null'), 'object') <> 'object'
               OR octet_length((i.e -> 'headers')::text) > 65536),
           bool_or(coalesce(i.e ->> 'message_id', i.e ->> 'dedupe_key') IS NOT NULL)
               OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'),
           array_agg(DISTINCT i.e ->> 'session' ORDER BY i.e ->> 'session')
    INTO v_bad, v_one_by_one, v_names
    FROM jsonb_array_elements(enqueue_many.events) WITH ORDINALITY AS i (e, ord);
    IF v_bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('event %s of the array is not valid: nothing was enqueued', v_bad),
            HINT = 'Each needs session (1 to 512 bytes), event_type (1 to 200) and payload; headers must be an object of at most 65536 bytes, priority between -100 and 100.';
    END IF;
    IF v_names IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(n.name ORDER BY n.name COLLATE "C") INTO v_names FROM unnest(v_names) AS n (name);

    WITH created AS (
        INSERT INTO lanekeeper.session AS s (stream_id, name, lanes_version)
        SELECT v_stream_id, n.name, v_stream_lanes
        FROM unnest(v_names) WITH ORDINALITY AS n (name, ord)
        WHERE NOT EXISTS (
            SELECT FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = n.name)
        ORDER BY n.ord
        ON CONFLICT DO NOTHING
        RETURNING s.session_id
    )
    SELECT coalesce(array_agg(c.session_id), '{}') INTO v_created FROM created AS c;

    SELECT array_agg(s.session_id ORDER BY s.ord) INTO v_ids
    FROM (
        SELECT s.ord, s.session_id, pg_advisory_xact_lock(lanekeeper.append_lock(s.session_id))
        FROM (
            SELECT n.ord, s.session_id
            FROM unnest(v_names) WITH ORDINALITY AS n (name, ord)
            CROSS JOIN LATERAL (
                SELECT s.session_id FROM lanekeeper.session AS s
                WHERE s.stream_id = v_stream_id AND s.name = n.name OFFSET 0) AS s
            ORDER BY n.ord
        ) AS s
    ) AS s;

    IF v_one_by_one THEN
        -- They stand at the stream's version already: the single call would find nothing to create.
        PERFORM lanekeeper.create_lanes(v_created, array_fill(0::bigint, ARRAY[cardinality(v_created)]),
            v_stream_id, v_stream_lanes, (clock_timestamp() AT TIME ZONE 'UTC')::date);
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

    -- From here on every statement sees all earlier appends of these sessions.
    v_now := clock_timestamp();
    v_today := (v_now AT TIME ZONE 'UTC')::date;
    SELECT array_agg(coalesce(n.seq, o.seq, 0) ORDER BY u.ord),
           array_agg(greatest(coalesce(n.day, o.day, v_today), v_today) ORDER BY u.ord),
           array_agg(coalesce(n.priority, o.priority, 0) ORDER BY u.ord)
    INTO v_newest, v_days, v_priorities
    FROM unnest(v_ids) WITH ORDINALITY AS u (session_id, ord)
    LEFT JOIN LATERAL (
        SELECT e.seq, e.day, e.priority FROM lanekeeper.event AS e
        WHERE e.session_id = u.session_id AND e.day >= v_today
        ORDER BY e.seq DESC LIMIT 1) AS n ON true
    LEFT JOIN LATERAL (
        SELECT o.seq, o.day, o.priority FROM lanekeeper.newest_event(u.session_id, v_today) AS o
        WHERE n.seq IS NULL AND u.session_id <> ALL (v_created)) AS o ON true;

    SELECT array_agg(u.session_id ORDER BY u.ord), array_agg(u.newest ORDER BY u.ord)
    INTO v_lack, v_lack_newest
    FROM unnest(v_ids, v_newest) WITH ORDINALITY AS u (session_id, newest, ord)
    WHERE u.session_id = ANY (v_created) OR EXISTS (
        SELECT FROM lanekeeper.session AS s
        WHERE s.session_id = u.session_id AND s.lanes_version <> v_stream_lanes);
    IF v_lack IS NOT NULL THEN
        PERFORM lanekeeper.create_lanes(v_lack, v_lack_newest, v_stream_id, v_stream_lanes, v_today);
    END IF;
    FOR v_day IN SELECT DISTINCT d.day FROM unnest(v_days) AS d (day) LOOP
        PERFORM lanekeeper.create_event_partition(v_day);
    END LOOP;

    PERFORM lanekeeper.remember_priority(p.priority)
    FROM (
        SELECT DISTINCT (i.e ->> 'priority')::smallint AS priority
        FROM jsonb_array_elements(enqueue_many.events) AS i (e)
        WHERE coalesce(i.e ->> 'priority', '0') <> '0'
        ORDER BY 1
    ) AS p;

    RETURN QUERY
    WITH input AS MATERIALIZED (
        SELECT i.ord, i.e ->> 'session' AS name, i.e ->> 'event_type' AS event_type, i.e -> 'payload' AS payload,
               coalesce((i.e ->> 'priority')::smallint, 0::smallint) AS priority,
               nullif(nullif(i.e -> 'headers', '{}'), 'null') AS headers,
               encode(set_bit(set_bit(overlay(
                   uuid_send(gen_random_uuid())
                   PLACING substring(int8send((extract(epoch FROM v_now) * 1000)::bigint) FROM 3) FROM 1 FOR 6
               ), 52, 1), 53, 1), 'hex')::uuid AS message_id
        FROM jsonb_array_elements(enqueue_many.events) WITH ORDINALITY AS i (e, ord)
    ), numbered AS MATERIALIZED (
        SELECT i.*, u.session_id, u.day,
               u.newest + row_number() OVER (PARTITION BY u.session_id ORDER BY i.ord) AS seq
        FROM input AS i
        JOIN unnest(v_names, v_ids, v_newest, v_days) AS u (name, session_id, newest, day) ON u.name = i.name
    ), inserted AS (
        INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
        SELECT n.session_id, n.seq, n.day, n.priority, lanekeeper.checked_size(n.ord, n.payload, v_max_bytes),
               v_now, n.message_id, n.event_type, n.payload, n.headers
        FROM numbered AS n
        ORDER BY n.session_id, n.seq
    )
    SELECT n.message_id, n.seq, false FROM numbered AS n ORDER BY n.ord;

    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT l.route, a.priority, v_now, l.lane_id
    FROM (
        SELECT u.session_id, u.newest, u.priority AS prev_priority,
               u.newest + count(*) AS seq,
               max(coalesce((i.e ->> 'priority')::smallint, 0::smallint)) AS priority,
               array_agg(DISTINCT i.e ->> 'event_type') AS types
        FROM jsonb_array_elements(enqueue_many.events) AS i (e)
        JOIN unnest(v_names, v_ids, v_newest, v_priorities) AS u (name, session_id, newest, priority)
          ON u.name = i.e ->> 'session'
        GROUP BY 1, 2, 3
    ) AS a
    JOIN lanekeeper.lane AS l ON l.session_id = a.session_id
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    CROSS JOIN LATERAL (
        SELECT p.cursor, p.cursor_day, p.parked_at
        FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
        ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE s.removed_at IS NULL AND p.parked_at IS NULL AND CASE
        WHEN s.events IS NULL THEN
            p.cursor >= a.newest OR a.priority > a.prev_priority
        WHEN s.events && a.types THEN
            a.priority > a.prev_priority
            OR a.newest - p.cursor < lanekeeper.filter_look_back() AND (
                p.cursor >= a.newest
                OR NOT lanekeeper.has_matching(l.session_id, p.cursor, p.cursor_day, a.newest, s.events))
        ELSE a.newest - p.cursor < lanekeeper.filter_look_back()
             AND a.seq - p.cursor >= lanekeeper.filter_look_back()
    END;
    IF FOUND THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;

-- Adds the lanes of one subscription to sessions that existed before it, `p_limit` sessions at a
-- time, and wakes them where it starts at the earliest event. Returns the last session_id handled,
-- NULL when there is none after `p_after_session`.
CREATE FUNCTION lanekeeper.add_lanes(p_subscription_id int, p_after_session bigint, p_limit int)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_stream_id int;
    v_version   bigint;
    v_ids       bigint[];
    v_newest    bigint[];
    v_today     date;
BEGIN
    SELECT s.stream_id, t.lanes_version INTO STRICT v_stream_id, v_version
    FROM lanekeeper.subscription AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.subscription_id = p_subscription_id;
    SELECT array_agg(b.session_id ORDER BY b.session_id) INTO v_ids
    FROM (
        SELECT s.session_id FROM lanekeeper.session AS s
        WHERE s.stream_id = v_stream_id AND s.session_id > p_after_session
        ORDER BY s.session_id LIMIT p_limit
    ) AS b;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    -- In the order of names, like every producer.
    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(b.session_id))
    FROM (
        SELECT s.session_id FROM lanekeeper.session AS s
        WHERE s.session_id = ANY (v_ids) ORDER BY s.name COLLATE "C"
    ) AS b;
    v_today := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    SELECT array_agg(n.seq ORDER BY u.ord) INTO v_newest
    FROM unnest(v_ids) WITH ORDINALITY AS u (session_id, ord)
    CROSS JOIN LATERAL lanekeeper.newest_event(u.session_id, v_today) AS n;
    PERFORM lanekeeper.create_lanes(v_ids, v_newest, v_stream_id, v_version, v_today);
    PERFORM lanekeeper.ring();
    RETURN v_ids[cardinality(v_ids)];
END
$$;

-- A8: true where this consumer has handled the message before; the first call remembers it.
CREATE FUNCTION lanekeeper.seen(consumer text, session text, message_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO lanekeeper.seen_message (consumer, session, message_id)
    VALUES (seen.consumer, seen.session, seen.message_id)
    ON CONFLICT DO NOTHING;
    RETURN NOT FOUND;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lanekeeper FROM PUBLIC;
