-- However many days the log has, what appends, fetches and settlements read is its last two. A plan on the
-- log has all its partitions, locks them all at each execution, and takes a new connection a third of a second
-- to make for a year of them, although one or two are read. So there is a view of the log from yesterday on,
-- with that day as a constant: the planner leaves the other partitions out. Whoever reads it must not need what
-- is before: see ARCHITECTURE.md, "The recent part of the log".
--
-- Figures: docs/performance.md.

-- In short turns, as in 0010: producers queue behind a request that waits.
DO $$
BEGIN
    FOR turn IN 1 .. 100 LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            LOCK TABLE lanekeeper.session, lanekeeper.ready IN ACCESS EXCLUSIVE MODE;
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
-- The day of the session's newest event, written by the first append of a day. NULL where there was none since
-- this migration; later than the newest event only where there is none at all.
ALTER TABLE lanekeeper.session ADD COLUMN newest_day date;
-- Every event that the lane has not settled is of this day or a later one. NULL where that is not known.
ALTER TABLE lanekeeper.ready ADD COLUMN day date;

-- From which day on `recent_event` has the log. Whoever reads both views, or this one first in its transaction,
-- sees one state: they are replaced together, this one first.
CREATE VIEW lanekeeper.recent_since AS SELECT '2000-01-01'::date AS since;
CREATE VIEW lanekeeper.recent_event AS
SELECT e.session_id, e.seq, e.day, e.priority, e.size, e.created_at, e.message_id, e.event_type, e.payload, e.headers
FROM lanekeeper.event AS e WHERE e.day >= '2000-01-01'::date;

-- Has the recent part of the log begin yesterday. In ten short turns, since producers queue behind a request that
-- waits: where transactions that have appended are open each time, it stays as it is until the next call.
-- Returns whether it was moved.
CREATE FUNCTION lanekeeper.move_recent() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
    v_since date := (clock_timestamp() AT TIME ZONE 'UTC')::date - 1;
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since = v_since)
       OR NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(4)) THEN
        RETURN false;
    END IF;
    FOR turn IN 1 .. 10 LOOP
        BEGIN
            -- This one first: readers of both count on it.
            EXECUTE format('CREATE OR REPLACE VIEW lanekeeper.recent_since AS SELECT %L::date AS since', v_since);
            EXECUTE format($query$
                CREATE OR REPLACE VIEW lanekeeper.recent_event AS
                SELECT e.session_id, e.seq, e.day, e.priority, e.size, e.created_at, e.message_id, e.event_type, e.payload, e.headers
                FROM lanekeeper.event AS e WHERE e.day >= %L::date
                $query$, v_since);
            RETURN true;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RETURN false;
END
$$;

SELECT lanekeeper.move_recent();

-- The newest event of a session, the newest day first; after retention, what session_tail kept.
-- Index: event's primary key, backwards, of the recent partitions and of one more; of all where the session's
-- newest day is not known. The partition is named in a statement of its own, so that no other one is locked; it is
-- not dropped meanwhile, since the first statement has the log itself locked.
CREATE OR REPLACE FUNCTION lanekeeper.newest_event(
    IN p_session_id bigint, IN p_today date,
    OUT seq bigint, OUT day date, OUT priority smallint
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tail  bigint;
    v_day   date;
    v_since date;
BEGIN
    SELECT e.seq, e.day, e.priority INTO seq, day, priority
    FROM lanekeeper.recent_event AS e
    WHERE e.session_id = p_session_id
    ORDER BY e.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        SELECT s.newest_day, r.since INTO v_day, v_since
        FROM lanekeeper.session AS s CROSS JOIN lanekeeper.recent_since AS r
        WHERE s.session_id = p_session_id;
        IF v_day IS NULL THEN
            SELECT e.seq, e.day, e.priority INTO seq, day, priority
            FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id
            ORDER BY e.seq DESC LIMIT 1;
        ELSIF v_day < v_since AND to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NOT NULL THEN
            EXECUTE format('SELECT e.seq, e.day, e.priority FROM lanekeeper.%I AS e WHERE e.session_id = $1 ORDER BY e.seq DESC LIMIT 1',
                           'event_' || to_char(v_day, 'YYYYMMDD'))
            INTO seq, day, priority USING p_session_id;
        END IF;
    END IF;
    SELECT t.seq INTO v_tail FROM lanekeeper.session_tail AS t
    WHERE t.session_id = p_session_id ORDER BY t.seq DESC LIMIT 1;
    IF seq IS NULL OR v_tail > seq THEN
        seq := coalesce(v_tail, 0);
        day := p_today;
        priority := 0;
    END IF;
END
$$;

-- Raises 55000 where the recent part of the log does not begin by that day.
CREATE FUNCTION lanekeeper.require_recent(p_day date) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_day) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the recent part of the log begins after %s', p_day);
    END IF;
    RETURN true;
END
$$;

-- When the first event behind the cursor was appended. Index: event's primary key.
CREATE FUNCTION lanekeeper.first_event_at(p_session_id bigint, p_cursor bigint, p_cursor_day date) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_cursor_day) THEN
        RETURN (
            SELECT e.created_at FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day
            ORDER BY e.seq LIMIT 1);
    END IF;
    RETURN (
        SELECT e.created_at FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day
        ORDER BY e.seq LIMIT 1);
END
$$;

-- Whether an event of these types is behind the cursor, up to p_newest.
CREATE OR REPLACE FUNCTION lanekeeper.has_matching(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_newest bigint, p_types text[]
) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_cursor_day) THEN
        RETURN EXISTS (
            SELECT FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_session_id AND e.day >= p_cursor_day
              AND e.seq > p_cursor AND e.seq <= p_newest AND e.event_type = ANY (p_types));
    END IF;
    RETURN EXISTS (
        SELECT FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.day >= p_cursor_day
          AND e.seq > p_cursor AND e.seq <= p_newest AND e.event_type = ANY (p_types));
END
$$;

-- Finds or creates the session, takes its append lock and adds the lanes that it lacks. For what an
-- append does not meet every time: a new session, and a session after a subscription was added.
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
    FROM lanekeeper.recent_event AS e
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
            -- An event that is in the log is of another day, or it would have been found above. Not in one expression
            -- with the look at the log, which locks every partition.
            IF seq > 1 AND v_day = v_today THEN
                v_bare := NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = v_session_id);
            END IF;
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
            UPDATE lanekeeper.session AS s SET newest_day = v_day
            WHERE s.session_id = v_session_id AND s.newest_day IS DISTINCT FROM v_day;
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
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session, day)
        -- Due from now on, when the transaction has its number: see src/engine/behind.rs.
        SELECT l.route, enqueue.priority, clock_timestamp(), l.lane_id, v_session_id, enqueue.session,
               CASE WHEN p.cursor >= enqueue.seq - 1 THEN v_day END
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
    -- Sessions without an event of today.
    v_other_day     bigint[];
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
    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(u.session_id)) FROM unnest(v_ids) AS u (session_id);

    -- From here on, in READ COMMITTED, every statement sees all earlier appends of these sessions.
    v_now := clock_timestamp();
    v_today := (v_now AT TIME ZONE 'UTC')::date;
    SELECT array_agg(n.seq ORDER BY u.ord), array_agg(n.day ORDER BY u.ord), array_agg(n.priority ORDER BY u.ord)
    INTO v_newest, v_days, v_priorities
    FROM unnest(v_ids) WITH ORDINALITY AS u (session_id, ord)
    LEFT JOIN LATERAL (
        SELECT e.seq, e.day, e.priority FROM lanekeeper.recent_event AS e
        WHERE e.session_id = u.session_id AND e.day >= v_today
        ORDER BY e.seq DESC LIMIT 1
    ) AS n ON true;
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
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session, day)
    SELECT l.route, a.priority, clock_timestamp(), l.lane_id, u.session_id, v_names[a.place],
           CASE WHEN p.cursor >= u.newest THEN v_days[a.place] END
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

-- Walks the due tokens of the given routes, highest priority first, and takes the lane locks of up
-- to p_limit lanes. Writes nothing but the claim's own row: the tokens stay, so that a crash at
-- any point leaves them there.
--
-- p_bounds, p_bound_ids: the walk of a route starts behind that token. What an earlier walk passed need
-- not be walked again, deleted tokens and those of held lanes above all. An instant long ago walks all.
-- p_held: lanes that the worker holds already, in ascending order (session locks are
-- re-entrant, and every held lane's token may be walked: they are looked up by bisection).
-- Returns one row of arrays. For each token that was taken: lane_ids to cursor_days; routes and priorities
-- are of length one where it is the same for all. For those of them whose heads have a past, that are parked
-- or have requeued dead letters: their places in lane_ids, and attempts to requeued_after. A lane that has two tokens in one walk is there twice and is locked twice: the caller goes by the first and
-- unlocks it once for the other. For each route, in the order given: the next bound and, if nothing was taken,
-- the time until its next token is due. A walk that came to its limit is continued where it ended; after
-- one that saw all that was due, the next starts at the first token that is there, whoever holds its lane:
-- so what a holder that dies leaves behind is seen at once where there is little to do, and by the next
-- walk of all where there is much.
--
-- OFFSET 0 keeps the lock above the walk whatever the plan below is, and LIMIT stops the walk: no lock
-- is taken that is not returned. The tokens' rows are not locked: that would be a write for each. A
-- settlement may have replaced a token after the walk's snapshot and given the lane back before its lock
-- was tried. So each is looked for once more when the lane is ours and nobody else can touch it.
-- Index: ready's primary key.
CREATE OR REPLACE FUNCTION lanekeeper.claim_lanes(
    IN p_connection_id bigint, IN p_claim_id bigint,
    IN p_routes int[], IN p_rooms int[], IN p_bounds timestamptz[], IN p_bound_ids bigint[], IN p_limit int,
    IN p_held bigint[],
    OUT lane_ids bigint[], OUT routes int[], OUT priorities smallint[], OUT tokens tid[], OUT token_ids bigint[],
    OUT session_ids bigint[], OUT sessions text[], OUT versions bigint[], OUT cursors bigint[], OUT cursor_days date[],
    OUT bounds timestamptz[], OUT bound_ids bigint[], OUT due_in_ms bigint[],
    OUT places int[], OUT attempts int[], OUT crashes int[], OUT waits_ms bigint[], OUT parked boolean[],
    OUT requeued_after bigint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now         timestamptz := clock_timestamp();
    -- A token is due from its append on and seen from the commit on: the bound stays a little behind,
    -- so that the next walk sees it.
    v_recent      timestamptz := v_now - interval '50 ms';
    v_levels      smallint[];
    v_priority    smallint;
    v_share       int := greatest(1, p_limit / greatest(1, cardinality(p_routes)));
    v_room        int;
    v_full        boolean;
    v_first_at    timestamptz;
    v_first_id    bigint;
    -- Up to where a walk came.
    v_end_at      timestamptz;
    v_last_at     timestamptz;
    v_end_id      bigint;
    v_rooms       int[] := p_rooms;
    v_held        bigint[] := p_held;
    -- Lanes were taken that v_held lacks.
    v_more        boolean := false;
    -- What one walk took.
    v_count       int;
    v_lane_ids    bigint[];
    v_session_ids bigint[];
    v_sessions    text[];
    v_tokens      tid[];
    v_token_ids   bigint[];
    v_found       int[];
    v_walks       int := 0;
    -- Of how many lanes more is to be said.
    v_places      bigint;
    v_crashes     int[];
BEGIN
    lane_ids := '{}';
    bounds := array_fill('infinity'::timestamptz, ARRAY[cardinality(p_routes)]);
    bound_ids := p_bound_ids;
    SELECT array_agg(l.priority ORDER BY l.priority DESC) INTO v_levels FROM lanekeeper.priority_level AS l;

    -- First every route gets its share, then whoever has more.
    FOR pass IN 1 .. 2 LOOP
        v_full := false;
        FOREACH v_priority IN ARRAY v_levels LOOP
            FOR i IN 1 .. cardinality(p_routes) LOOP
                v_room := least(v_rooms[i], p_limit - cardinality(lane_ids));
                IF pass = 1 AND v_room > v_share THEN
                    v_room := v_share;
                END IF;
                v_count := 0;
                v_end_at := p_bounds[i];
                v_end_id := p_bound_ids[i];
                IF v_room > 0 THEN
                    SELECT r.due_at, r.id - 1 INTO v_first_at, v_first_id
                    FROM lanekeeper.ready AS r
                    WHERE r.route = p_routes[i] AND r.priority = v_priority
                      AND (r.due_at, r.id) > (p_bounds[i], p_bound_ids[i]) AND r.due_at <= v_now
                    ORDER BY r.due_at, r.id LIMIT 1;
                    IF FOUND THEN
                        IF v_more THEN
                            SELECT array_agg(h.lane_id ORDER BY h.lane_id) INTO v_held
                            FROM (SELECT unnest(p_held) UNION SELECT unnest(lane_ids)) AS h (lane_id);
                            v_more := false;
                        END IF;

                        SELECT count(*), array_agg(t.lane_id), array_agg(t.session_id), array_agg(t.session),
                               array_agg(t.token), array_agg(t.id), max(t.due_at)
                        INTO v_count, v_lane_ids, v_session_ids, v_sessions, v_tokens, v_token_ids, v_last_at
                        FROM (
                            SELECT w.lane_id, w.session_id, w.session, w.token, w.id, w.due_at
                            FROM (
                                SELECT r.lane_id, r.session_id, r.session, r.ctid AS token, r.id, r.due_at
                                FROM lanekeeper.ready AS r
                                WHERE r.route = p_routes[i] AND r.priority = v_priority
                                  AND (r.due_at, r.id) > (v_first_at, v_first_id) AND r.due_at <= v_now
                                  AND v_held[width_bucket(r.lane_id, v_held)] IS DISTINCT FROM r.lane_id
                                ORDER BY r.due_at, r.id
                                OFFSET 0
                            ) AS w
                            WHERE pg_try_advisory_lock(lanekeeper.lane_lock(w.lane_id))
                            LIMIT v_room
                        ) AS t;
                    END IF;
                    IF v_count = v_room THEN
                        v_end_at := v_last_at;
                        v_end_id := v_token_ids[v_count];
                        v_full := v_full OR pass = 1;
                    ELSIF v_first_at IS NOT NULL THEN
                        v_end_at := v_first_at;
                        v_end_id := v_first_id;
                    ELSE
                        v_end_at := v_recent;
                    END IF;
                    IF v_end_at > v_recent THEN
                        v_end_at := v_recent;
                        v_end_id := 0;
                    END IF;
                END IF;
                -- The least of what all priorities come to. The second pass only takes more.
                IF pass = 1 AND (v_end_at, v_end_id) < (bounds[i], bound_ids[i]) THEN
                    bounds[i] := greatest(v_end_at, p_bounds[i]);
                    bound_ids[i] := v_end_id;
                END IF;
                CONTINUE WHEN v_count = 0;
                lane_ids := lane_ids || v_lane_ids;
                session_ids := session_ids || v_session_ids;
                sessions := sessions || v_sessions;
                tokens := tokens || v_tokens;
                token_ids := token_ids || v_token_ids;
                routes := routes || array_fill(p_routes[i], ARRAY[v_count]);
                priorities := priorities || array_fill(v_priority, ARRAY[v_count]);
                v_walks := v_walks + 1;
                v_more := true;
                v_rooms[i] := v_rooms[i] - v_count;
            END LOOP;
        END LOOP;
        EXIT WHEN NOT v_full OR cardinality(p_routes) = 1 OR cardinality(lane_ids) >= p_limit;
    END LOOP;

    IF cardinality(lane_ids) = 0 THEN
        SELECT array_agg(n.due_in_ms ORDER BY u.ord) INTO due_in_ms
        FROM unnest(p_routes) WITH ORDINALITY AS u (route, ord)
        LEFT JOIN LATERAL (
            SELECT min(ceil(extract(epoch FROM n.due_at - v_now) * 1000)::bigint) AS due_in_ms
            FROM unnest(v_levels) AS l (priority)
            CROSS JOIN LATERAL (
                SELECT r.due_at FROM lanekeeper.ready AS r
                WHERE r.route = u.route AND r.priority = l.priority AND r.due_at > v_now
                ORDER BY r.due_at, r.id LIMIT 1
            ) AS n
        ) AS n ON true;
        RETURN;
    END IF;

    -- A statement of its own: its snapshot is taken after the locks.
    SELECT array_agg(i), array_agg(p.version + p.step), array_agg(p.cursor), array_agg(greatest(p.cursor_day, r.day)),
           count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                  OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL)
    INTO v_found, versions, cursors, cursor_days, v_places
    FROM generate_series(1, cardinality(lane_ids)) AS i
    JOIN lanekeeper.ready AS r ON r.ctid = tokens[i] AND r.id = token_ids[i]
    CROSS JOIN LATERAL (
        SELECT p.version, p.step, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at,
               p.requeued_after
        FROM lanekeeper.progress AS p WHERE p.lane_id = lane_ids[i]
        ORDER BY p.version DESC LIMIT 1
    ) AS p;

    -- A token may have been replaced since the walk, and may outlive its lane, where a session was removed.
    IF cardinality(v_found) IS DISTINCT FROM cardinality(lane_ids) THEN
        WITH orphan AS (
            DELETE FROM lanekeeper.ready AS r USING generate_series(1, cardinality(lane_ids)) AS i
            WHERE i <> ALL (coalesce(v_found, '{}')) AND r.ctid = tokens[i] AND r.id = token_ids[i]
        )
        SELECT array_agg(pg_advisory_unlock(lanekeeper.lane_lock(lane_ids[i]))) IS NULL INTO v_full
        FROM generate_series(1, cardinality(lane_ids)) AS i WHERE i <> ALL (coalesce(v_found, '{}'));
        SELECT coalesce(array_agg(lane_ids[i]), '{}'), array_agg(session_ids[i]), array_agg(sessions[i]),
               array_agg(tokens[i]), array_agg(token_ids[i]), array_agg(routes[i]), array_agg(priorities[i])
        INTO lane_ids, session_ids, sessions, tokens, token_ids, routes, priorities
        FROM unnest(v_found) AS i;
        IF cardinality(lane_ids) = 0 THEN
            RETURN;
        END IF;
    END IF;

    IF array_position(sessions, NULL) IS NOT NULL THEN
        SELECT array_agg(n.session_id), array_agg(n.name) INTO session_ids, sessions
        FROM generate_series(1, cardinality(lane_ids)) AS i
        CROSS JOIN LATERAL (
            SELECT session_ids[i], sessions[i] WHERE sessions[i] IS NOT NULL
            UNION ALL
            SELECT s.session_id, s.name
            FROM lanekeeper.lane AS l JOIN lanekeeper.session AS s ON s.session_id = l.session_id
            WHERE sessions[i] IS NULL AND l.lane_id = lane_ids[i]
        ) AS n (session_id, name);
    END IF;

    v_crashes := array_fill(0, ARRAY[cardinality(lane_ids)]);
    IF v_places > 0 THEN
        -- The lanes are ours: what the statement before saw of them has not changed.
        SELECT array_agg(i), array_agg(p.attempts), array_agg(p.crashes),
               array_agg(CASE WHEN p.retry_at > v_now THEN ceil(extract(epoch FROM p.retry_at - v_now) * 1000)::bigint END),
               array_agg(p.parked_at IS NOT NULL), array_agg(p.requeued_after)
        INTO places, attempts, crashes, waits_ms, parked, requeued_after
        FROM generate_series(1, cardinality(lane_ids)) AS i
        CROSS JOIN LATERAL (
            SELECT p.attempts, p.crashes, p.retry_at, p.parked_at, p.requeued_after
            FROM lanekeeper.progress AS p WHERE p.lane_id = lane_ids[i] AND p.version <= versions[i]
            ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
              OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL;
        FOR i IN 1 .. cardinality(places) LOOP
            v_crashes[places[i]] := CASE WHEN crashes[i] < 2 THEN crashes[i] END;
        END LOOP;
    END IF;
    INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
    VALUES (p_connection_id, p_claim_id, lane_ids, versions, v_crashes);
    IF v_walks = 1 THEN
        routes := routes[1:1];
        priorities := priorities[1:1];
    END IF;
END
$$;

-- Settles many lanes that this connection holds. Per lane an operation:
--   1 keep     the cursor moves, the lane stays held
--   2 finish   like keep; and if nothing is left the lane goes idle: its token is deleted
--   3 retry    the head failed or must wait: the token is replaced by one due after delay_ms
--   4 park     the token is deleted until an operator unparks the lane
--   5 yield    the token is replaced by one due now
--   6 discard  the token was a spare one and is deleted; progress is not touched
--   7 release  the token stays as it is
-- Where `changed` is false, progress is not written. What no lane has is an empty array: p_attempts, p_crashes,
-- p_delays_ms, p_errors, p_history_from, and p_routes and p_priorities where no token is replaced.
-- `p_outcome_ords` are places in `p_lanes`. Returns the places that were written,
-- and what each came to; a lane that is not among them was settled by somebody else, and nothing was
-- written for it:
--   1 done     as asked
--   2 idle     finish: nothing is left
--   3 more     finish: there are newer events
--   4 busy     finish: nothing newer is committed, but a producer holds the session's append lock; the token stays
-- The caller unlocks, after this has committed, what is no longer its own.
--
-- A token is found by its place and its id. Where it is no longer there (the table was rewritten) it
-- stays, and the next claim finds it to be a spare one.
CREATE OR REPLACE FUNCTION lanekeeper.settle(
    p_worker_id bigint,
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_operations smallint[], p_changed boolean[],
    p_cursors bigint[], p_days date[], p_attempts int[], p_crashes int[], p_delays_ms bigint[], p_errors text[],
    p_routes int[], p_priorities smallint[], p_tokens tid[], p_token_ids bigint[], p_history_from bigint[],
    p_outcome_ords int[], p_outcome_seqs bigint[], p_outcome_kinds text[], p_outcome_replaced_by bigint[],
    p_outcome_errors text[], p_outcome_attempts int[], p_outcome_crashes int[],
    OUT ords int[], OUT results smallint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_locked boolean[];
    v_ord    int;
    v_hit    boolean[];
    -- Of those that were written: whether dead letters of theirs are requeued.
    v_requeued boolean[];
    v_since    date;
    -- Some of them begin before that.
    v_old      boolean;
BEGIN
    -- Shared with the other holders of the session's lanes, exclusive against its producers.
    SELECT array_agg(CASE WHEN p_operations[i] = 2
                          THEN pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(p_sessions[i]))
                          ELSE false END),
           (SELECT r.since FROM lanekeeper.recent_since AS r)
    INTO v_locked, v_since
    FROM generate_series(1, cardinality(p_lanes)) AS i;

    -- In a statement of its own: its snapshot was taken after the append locks. The compare-and-set
    -- (I5) is on version and step; the versions that it can be keep the look-up from older, dead ones.
    WITH moved AS (
        UPDATE lanekeeper.progress AS p
        SET version = CASE WHEN p.step < 15 THEN p.version ELSE p.version + 16 END, step = (p.step + 1) % 16,
            cursor = p_cursors[i], cursor_day = p_days[i],
            attempts = coalesce(p_attempts[i], 0), crashes = coalesce(p_crashes[i], 0),
            retry_at = CASE WHEN p_operations[i] = 3 THEN v_now + p_delays_ms[i] * interval '1 ms' END,
            parked_at = CASE WHEN p_operations[i] = 4 THEN v_now END,
            last_error = p_errors[i], changed_at = v_now
        FROM generate_series(1, cardinality(p_lanes)) AS i
        WHERE p_changed[i] AND p.lane_id = p_lanes[i] AND p.version + p.step = p_versions[i]
          AND p.version BETWEEN p_versions[i] - 15 AND p_versions[i]
        RETURNING i, p.requeued_after
    )
    SELECT array_agg(h.i), array_agg(h.requeued) INTO ords, v_requeued
    FROM (
        SELECT i, requeued_after IS NOT NULL AS requeued FROM moved
        UNION ALL
        SELECT i, false FROM generate_series(1, cardinality(p_lanes)) AS i WHERE NOT p_changed[i]
    ) AS h;

    -- More without the lock too: what is committed need not wait for the append that has it.
    SELECT array_agg((CASE WHEN p_operations[ords[n]] <> 2 THEN 1
                           WHEN v_requeued[n] OR EXISTS (
                               SELECT FROM lanekeeper.recent_event AS e
                               WHERE e.session_id = p_sessions[ords[n]] AND e.seq > p_cursors[ords[n]]
                                 AND e.day >= p_days[ords[n]]) THEN 3
                           WHEN v_locked[ords[n]] THEN 2
                           ELSE 4 END)::smallint),
           bool_or(p_operations[ords[n]] = 2 AND p_days[ords[n]] < v_since)
    INTO results, v_old
    FROM generate_series(1, cardinality(ords)) AS n;
    -- Of lanes with an old backlog the recent part of the log does not tell all.
    IF v_old THEN
        SELECT array_agg((CASE WHEN results[n] IN (2, 4) AND EXISTS (
                                   SELECT FROM lanekeeper.event AS e
                                   WHERE e.session_id = p_sessions[ords[n]] AND e.seq > p_cursors[ords[n]]
                                     AND e.day >= p_days[ords[n]]) THEN 3
                               ELSE results[n] END)::smallint)
        INTO results
        FROM generate_series(1, cardinality(ords)) AS n;
    END IF;

    DELETE FROM lanekeeper.ready AS r USING generate_series(1, cardinality(ords)) AS i
    WHERE (results[i] = 2 OR p_operations[ords[i]] BETWEEN 3 AND 6)
      AND r.ctid = p_tokens[ords[i]] AND r.id = p_token_ids[ords[i]];

    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id)
    SELECT p_routes[i], p_priorities[i],
           CASE p_operations[i] WHEN 3 THEN v_now + p_delays_ms[i] * interval '1 ms' ELSE v_now END,
           p_lanes[i], p_sessions[i]
    FROM unnest(ords) AS i
    WHERE p_operations[i] IN (3, 5);

    IF cardinality(p_history_from) > 0 THEN
        INSERT INTO lanekeeper.history (lane_id, from_seq, to_seq, attempts, worker_id, settled_at)
        SELECT p_lanes[i], p_history_from[i], p_cursors[i], coalesce(p_attempts[i], 0), p_worker_id, v_now
        FROM unnest(ords) AS i
        WHERE p_history_from[i] <= p_cursors[i];
    END IF;

    IF cardinality(p_outcome_ords) > 0 THEN
        -- On disk before the successor is delivered: if it were lost with the server, the event would come
        -- again, behind its successor. Another settlement that is lost is a redelivery, in order.
        IF p_outcome_kinds && '{dead_lettered,dropped,dead_lettered_again}' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        v_hit := array_fill(false, ARRAY[cardinality(p_lanes)]);
        FOREACH v_ord IN ARRAY coalesce(ords, '{}') LOOP
            v_hit[v_ord] := true;
        END LOOP;
        WITH due AS MATERIALIZED (
            SELECT o.*, p_lanes[o.ord] AS lane_id, p_sessions[o.ord] AS session_id
            FROM unnest(p_outcome_ords, p_outcome_seqs, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                        p_outcome_attempts, p_outcome_crashes)
                 AS o (ord, seq, kind, replaced_by, error, attempts, crashes)
            WHERE v_hit[o.ord] AND o.kind NOT IN ('redelivered', 'dead_lettered_again')
        ), dead AS (
            INSERT INTO lanekeeper.dead
                (lane_id, seq, message_id, event_type, payload, headers, created_at, attempts, crashes, error)
            SELECT d.lane_id, d.seq, e.message_id, e.event_type, e.payload::jsonb, e.headers, e.created_at,
                   d.attempts, d.crashes, d.error
            FROM due AS d
            JOIN lanekeeper.event AS e ON e.session_id = d.session_id AND e.seq = d.seq
            WHERE d.kind = 'dead_lettered'
        )
        INSERT INTO lanekeeper.outcome (lane_id, seq, kind, replaced_by, error)
        SELECT d.lane_id, d.seq, d.kind, d.replaced_by, d.error FROM due AS d
        -- A replayed event may come to a second outcome; the first stays on record.
        ON CONFLICT DO NOTHING;
        IF p_outcome_kinds && '{redelivered,dead_lettered_again}' THEN
            PERFORM lanekeeper.settle_letters(
                p_lanes, p_versions, v_hit, p_outcome_ords, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                p_outcome_attempts, p_outcome_crashes);
        END IF;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION lanekeeper.move_recent, lanekeeper.require_recent, lanekeeper.first_event_at FROM PUBLIC;
