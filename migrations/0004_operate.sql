-- What people and housekeeping need: operator actions, views, retention.

-- Who told the engine what: every operator action on a lane, a subscription or a dead letter.
CREATE TABLE lanekeeper.operation (
    operation_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    done_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_by         text NOT NULL DEFAULT session_user,
    action          text NOT NULL,
    subscription_id int,
    lane_id         bigint,
    seq             bigint,
    reason          text,
    CONSTRAINT action_is_known CHECK (action IN (
        'retry', 'skip', 'park', 'unpark', 'pause', 'resume', 'drop_dead_letter'))
);

-- The oldest event of a lane that is not settled: what retry and skip act on.
CREATE FUNCTION lanekeeper.lane_head(p_session_id bigint, p_cursor bigint, p_day date, p_events text[])
RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_day
      AND (p_events IS NULL OR e.event_type = ANY (p_events))
    ORDER BY e.seq LIMIT 1
$$;

-- One operator action on one lane: retry (now), skip (the head), park, unpark. Waits for a running
-- delivery up to 5 s. With p_head, nothing is done unless that seq is still the head: what an
-- operator saw may have been delivered since. Returns the lane's new state. SQLSTATEs: LK006 invalid,
-- LK007 lane busy, LK008 another head.
CREATE FUNCTION lanekeeper.change_lane(
    p_lane_id bigint, p_action text, p_reason text DEFAULT NULL, p_head bigint DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    v_lane     record;
    v_progress lanekeeper.progress%ROWTYPE;
    v_head     bigint;
BEGIN
    SELECT l.lane_id, l.session_id, l.subscription_id, l.route, s.events INTO v_lane
    FROM lanekeeper.lane AS l JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    WHERE l.lane_id = p_lane_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = format('there is no lane %s', p_lane_id),
            HINT = 'List lanes with `lanekeeper lane list`.';
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock(lanekeeper.lane_lock(p_lane_id));
    EXCEPTION WHEN lock_not_available THEN
        RAISE EXCEPTION USING ERRCODE = 'LK007',
            MESSAGE = format('lane %s is being delivered and was not let go within 5 s: nothing was changed', p_lane_id),
            HINT = 'Try again, or pause the subscription first.';
    END;
    SELECT p.* INTO STRICT v_progress FROM lanekeeper.progress AS p
    WHERE p.lane_id = p_lane_id ORDER BY p.version DESC LIMIT 1;
    v_head := lanekeeper.lane_head(v_lane.session_id, v_progress.cursor, v_progress.cursor_day, v_lane.events);
    IF p_head <> coalesce(v_head, 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'LK008',
            MESSAGE = format('seq %s is not the head of lane %s any more: nothing was changed', p_head, p_lane_id),
            HINT = 'Look at the lane again with `lanekeeper lane show`.';
    END IF;

    CASE p_action
    WHEN 'park' THEN
        v_progress.parked_at := clock_timestamp();
        v_progress.last_error := coalesce(p_reason, v_progress.last_error, 'parked by an operator');
    WHEN 'unpark', 'retry' THEN
        v_progress.parked_at := NULL;
        v_progress.attempts := 0;
        v_progress.crashes := 0;
    WHEN 'skip' THEN
        IF v_head IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('lane %s has no undelivered event to skip', p_lane_id);
        END IF;
        INSERT INTO lanekeeper.outcome (lane_id, seq, kind, error)
        VALUES (p_lane_id, v_head, 'skipped', coalesce(p_reason, v_progress.last_error))
        ON CONFLICT DO NOTHING;
        SELECT e.day INTO v_progress.cursor_day FROM lanekeeper.event AS e
        WHERE e.session_id = v_lane.session_id AND e.seq = v_head AND e.day >= v_progress.cursor_day;
        v_progress.cursor := v_head;
        v_progress.parked_at := NULL;
        v_progress.attempts := 0;
        v_progress.crashes := 0;
        v_progress.last_error := NULL;
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('unknown action %L: use retry, skip, park or unpark', p_action);
    END CASE;

    DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id AND p.version = v_progress.version;
    INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, crashes, parked_at, last_error)
    VALUES (p_lane_id, v_progress.version + 1, v_progress.cursor, v_progress.cursor_day, v_progress.attempts,
            v_progress.crashes, v_progress.parked_at, v_progress.last_error);
    INSERT INTO lanekeeper.operation (action, subscription_id, lane_id, seq, reason)
    VALUES (p_action, v_lane.subscription_id, p_lane_id, v_head, p_reason);
    IF v_progress.parked_at IS NOT NULL THEN
        -- Its token is found to be a spare one by the next claim.
        RETURN 'parked';
    END IF;
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    VALUES (v_lane.route, 0, clock_timestamp(), p_lane_id);
    PERFORM lanekeeper.ring();
    RETURN 'ready';
END
$$;

-- Stops (with a reason) or restarts (with NULL) the delivery of a subscription. False where it is
-- not there or was so already.
CREATE FUNCTION lanekeeper.pause_subscription(p_name text, p_reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id int;
BEGIN
    UPDATE lanekeeper.subscription AS s
    SET paused_at = CASE WHEN p_reason IS NOT NULL THEN clock_timestamp() END, pause_reason = p_reason
    WHERE s.name = p_name AND s.removed_at IS NULL AND (s.paused_at IS NULL) = (p_reason IS NOT NULL)
    RETURNING s.subscription_id INTO v_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO lanekeeper.operation (action, subscription_id, reason)
    VALUES (CASE WHEN p_reason IS NULL THEN 'resume' ELSE 'pause' END, v_id, p_reason);
    PERFORM pg_notify('lanekeeper', '');
    RETURN true;
END
$$;

-- Marks a dead letter as dealt with. False where it was already, or is not there.
CREATE FUNCTION lanekeeper.drop_dead_letter(p_dead_id bigint, p_reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE lanekeeper.dead AS d SET resolution = 'dropped', resolved_at = clock_timestamp()
    WHERE d.dead_id = p_dead_id AND d.resolution IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO lanekeeper.operation (action, lane_id, seq, reason)
    SELECT 'drop_dead_letter', d.lane_id, d.seq, p_reason FROM lanekeeper.dead AS d WHERE d.dead_id = p_dead_id;
    RETURN true;
END
$$;

-- Who holds a lane's lock right now, for people: a lock's key is split over classid and objid.
CREATE VIEW lanekeeper.held_lane AS
SELECT ((k.classid::bigint << 32) | k.objid::bigint) - lanekeeper.lane_lock(0) AS lane_id,
       k.pid AS backend_pid, c.worker_id, c.connection_id
FROM pg_catalog.pg_locks AS k
JOIN lanekeeper.lane_connection AS c ON c.backend_pid = k.pid
WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
  AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
  AND k.classid::bigint >> 8 = lanekeeper.lane_lock(0) >> 40;

CREATE VIEW lanekeeper.lane_status AS
SELECT t.name AS stream, n.name AS session, s.name AS subscription, l.lane_id,
       CASE WHEN s.removed_at IS NOT NULL THEN 'removed'
            WHEN p.parked_at IS NOT NULL THEN 'parked'
            WHEN h.lane_id IS NOT NULL THEN 'held'
            WHEN s.paused_at IS NOT NULL THEN 'paused'
            WHEN p.retry_at > clock_timestamp() THEN 'blocked'
            WHEN head.seq IS NULL THEN 'idle'
            ELSE 'ready' END AS state,
       p.cursor, coalesce(newest.seq, p.cursor) AS newest_seq, coalesce(newest.seq - p.cursor, 0) AS behind,
       head.seq AS head_seq, head.created_at AS head_created_at,
       p.attempts, p.crashes, p.retry_at, p.parked_at, p.last_error, p.changed_at,
       h.worker_id AS held_by
FROM lanekeeper.lane AS l
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
CROSS JOIN LATERAL (
    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p
LEFT JOIN LATERAL (
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE e.session_id = l.session_id AND e.day >= p.cursor_day ORDER BY e.seq DESC LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT e.seq, e.created_at FROM lanekeeper.event AS e
    WHERE e.session_id = l.session_id AND e.seq > p.cursor AND e.day >= p.cursor_day
      AND (s.events IS NULL OR e.event_type = ANY (s.events))
    ORDER BY e.seq LIMIT 1
) AS head ON true
LEFT JOIN lanekeeper.held_lane AS h ON h.lane_id = l.lane_id;

-- An event per subscription of its stream, with its state there: pending, delivering, retrying,
-- parked, delivered, or the outcome that it came to instead.
CREATE VIEW lanekeeper.message AS
SELECT t.name AS stream, n.name AS session, e.seq, e.message_id, e.event_type, e.priority, e.created_at,
       e.payload, e.headers, s.name AS subscription,
       CASE WHEN s.subscription_id IS NULL THEN 'unsubscribed'
            WHEN e.seq <= p.cursor THEN coalesce(o.kind, CASE
                WHEN s.events IS NULL OR e.event_type = ANY (s.events) THEN 'delivered' ELSE 'filtered' END)
            WHEN NOT (s.events IS NULL OR e.event_type = ANY (s.events)) THEN 'filtered'
            WHEN e.seq > head.seq THEN 'pending'
            WHEN p.parked_at IS NOT NULL THEN 'parked'
            WHEN p.retry_at > clock_timestamp() THEN 'retrying'
            WHEN EXISTS (SELECT FROM lanekeeper.held_lane AS h WHERE h.lane_id = l.lane_id) THEN 'delivering'
            ELSE 'pending' END AS state,
       CASE WHEN e.seq = head.seq THEN p.attempts END AS attempts,
       coalesce(o.error, CASE WHEN e.seq = head.seq THEN p.last_error END) AS error,
       o.replaced_by, o.settled_at
FROM lanekeeper.event AS e
JOIN lanekeeper.session AS n ON n.session_id = e.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
LEFT JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
LEFT JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
LEFT JOIN LATERAL (
    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p ON true
LEFT JOIN lanekeeper.outcome AS o ON o.lane_id = l.lane_id AND o.seq = e.seq
LEFT JOIN LATERAL (
    SELECT lanekeeper.lane_head(l.session_id, p.cursor, p.cursor_day, s.events) AS seq
) AS head ON true;

CREATE VIEW lanekeeper.dead_letter AS
SELECT d.dead_id, t.name AS stream, n.name AS session, d.seq, s.name AS subscription, d.message_id, d.event_type,
       d.payload, d.headers, d.created_at, d.attempts, d.crashes, d.error, d.died_at, d.resolution, d.resolved_at
FROM lanekeeper.dead AS d
JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id;

CREATE VIEW lanekeeper.worker_status AS
SELECT DISTINCT ON (w.worker_id)
       w.worker_id, w.host, w.pid, w.release, w.state, w.started_at, w.beat_at,
       extract(epoch FROM clock_timestamp() - w.beat_at)::float8 AS silent_s,
       (SELECT count(*) FROM lanekeeper.lane_connection AS c WHERE c.worker_id = w.worker_id) AS lane_connections,
       (SELECT count(*) FROM lanekeeper.held_lane AS h WHERE h.worker_id = w.worker_id) AS held_lanes
FROM lanekeeper.worker AS w
ORDER BY w.worker_id, w.version DESC;

-- Drops the partition of one day, unless a lane still needs an event of it. The last seq of sessions
-- that have no newer event goes to session_tail first. Nothing is appended to a day that has passed,
-- so only the drop itself needs the lock. Returns dropped | needed | busy.
CREATE FUNCTION lanekeeper.drop_event_partition(p_day date) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_name   text := 'event_' || to_char(p_day, 'YYYYMMDD');
    v_needed boolean;
BEGIN
    IF p_day >= (clock_timestamp() AT TIME ZONE 'UTC')::date THEN
        RETURN 'needed';
    END IF;
    EXECUTE format($query$
        SELECT EXISTS (
            SELECT FROM (SELECT e.session_id, max(e.seq) AS seq FROM lanekeeper.%1$I AS e GROUP BY 1) AS e
            JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
            JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
            CROSS JOIN LATERAL (
                SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
                ORDER BY p.version DESC LIMIT 1) AS p
            WHERE p.cursor < e.seq AND (s.events IS NULL OR EXISTS (
                SELECT FROM lanekeeper.%1$I AS m
                WHERE m.session_id = e.session_id AND m.seq > p.cursor AND m.event_type = ANY (s.events))))
        $query$, v_name) INTO v_needed;
    IF v_needed THEN
        RETURN 'needed';
    END IF;
    EXECUTE format($query$
        INSERT INTO lanekeeper.session_tail (session_id, seq)
        SELECT e.session_id, max(e.seq) FROM lanekeeper.%I AS e
        WHERE NOT EXISTS (
            SELECT FROM lanekeeper.event AS newer WHERE newer.session_id = e.session_id AND newer.day > %L::date)
        GROUP BY 1
        ON CONFLICT DO NOTHING
        $query$, v_name, p_day);
    -- Producers queue behind this request: it gives up soon, and the next round tries again.
    EXECUTE format('LOCK TABLE ONLY lanekeeper.event, ONLY lanekeeper.%I IN ACCESS EXCLUSIVE MODE', v_name);
    EXECUTE format('DROP TABLE lanekeeper.%I', v_name);
    RETURN 'dropped';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
END
$$;

-- One round: partitions made ahead and dropped behind, old keys forgotten. One process at a time;
-- for the others there is nothing to do.
CREATE FUNCTION lanekeeper.keep_house(
    p_retention_days int, p_dedupe_days int,
    OUT partitions_created bigint, OUT partitions_dropped bigint, OUT partitions_kept bigint, OUT keys_forgotten bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    v_day   date;
    v_count bigint;
BEGIN
    partitions_created := 0; partitions_dropped := 0; partitions_kept := 0; keys_forgotten := 0;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(2)) THEN
        RETURN;
    END IF;
    partitions_created := lanekeeper.create_event_partitions();

    DELETE FROM lanekeeper.dedupe AS d
    WHERE (d.stream_id, d.key) IN (
        SELECT o.stream_id, o.key FROM lanekeeper.dedupe AS o
        WHERE o.created_at < clock_timestamp() - p_dedupe_days * interval '1 day' LIMIT 10000);
    GET DIAGNOSTICS keys_forgotten = ROW_COUNT;
    -- A8: receivers' keys go after 7 days.
    DELETE FROM lanekeeper.seen_message AS s
    WHERE (s.consumer, s.session, s.message_id) IN (
        SELECT o.consumer, o.session, o.message_id FROM lanekeeper.seen_message AS o
        WHERE o.seen_at < clock_timestamp() - interval '7 days' LIMIT 10000);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    keys_forgotten := keys_forgotten + v_count;

    -- The oldest day, and no other: the drop's lock on the log lasts until the end of the transaction,
    -- and days must go in their order. The caller calls again while something was dropped.
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) INTO v_day
    FROM pg_catalog.pg_inherits AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'lanekeeper.event'::regclass
      AND to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_retention_days;
    IF v_day IS NOT NULL THEN
        IF lanekeeper.drop_event_partition(v_day) = 'dropped' THEN
            partitions_dropped := 1;
        ELSE
            partitions_kept := 1;
        END IF;
    END IF;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lanekeeper FROM PUBLIC;
