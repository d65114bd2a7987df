-- Housekeeping: what an `apply` could not see is looked at again, records go after their time, and a
-- day of the log goes only when nobody can need it any more. See ARCHITECTURE.md, "Changes of
-- subscriptions" and "Retention".
--
-- Where sequential scans are off, compilation is too: the price that stands for "off" would have each
-- plan over a table of a few rows compiled, at a tenth of a second. OFFSET 0 keeps a look-up a look-up:
-- plans are made when a table may be empty and are kept, and a hash of all lanes would be made anew at each
-- turn.

CREATE FUNCTION lanekeeper.apply_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497495466717216768;

-- The number of a transaction whose low 32 bits are known: the nearest to p_next.
CREATE FUNCTION lanekeeper.xact_number(p_xid xid, p_next bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p_next - CASE WHEN b.behind < 2147483648 THEN b.behind ELSE b.behind - 4294967296 END
    FROM (SELECT ((p_next - p_xid::text::bigint) % 4294967296 + 4294967296) % 4294967296 AS behind) AS b
$$;

-- Whether every snapshot in this database, of other sessions and to come, sees the transaction p_xact,
-- which the caller sees. False while in doubt.
--
-- Transaction numbers alone do not tell: a snapshot may be older than its transaction's first write. Each
-- snapshot that misses p_xact holds its session's backend_xmin at p_xact or before it. A newer one may do
-- so too while something that old is open anywhere in the server; it is then waited for as well.
-- A number that this server has not reached came with a dump of another one, of whose transactions none
-- goes on here.
CREATE FUNCTION lanekeeper.seen_by_every_snapshot(p_xact xid8) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_xact bigint := p_xact::text::bigint;
    v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    -- An earlier look of this transaction would be repeated, and may be older than p_xact.
    PERFORM pg_stat_clear_snapshot();
    RETURN v_xact >= v_next OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xmin IS NOT NULL
          AND lanekeeper.xact_number(a.backend_xmin, v_next) <= v_xact);
END
$$;

-- Whether every transaction of this database that took its number before p_xact, which is over, is over
-- too: prepared ones as well. What they wrote is seen by the caller's next statement.
CREATE FUNCTION lanekeeper.over_before(p_xact xid8) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_xact bigint := p_xact::text::bigint;
    v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    PERFORM pg_stat_clear_snapshot();
    IF v_xact >= v_next THEN
        RETURN true;
    END IF;
    IF EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xid IS NOT NULL
          AND lanekeeper.xact_number(a.backend_xid, v_next) < v_xact)
    THEN
        RETURN false;
    END IF;
    -- After the sessions: one that is prepared meanwhile is among these before it leaves those.
    RETURN NOT EXISTS (
        SELECT FROM pg_catalog.pg_prepared_xacts AS p
        WHERE p.database = current_database() AND lanekeeper.xact_number(p.transaction, v_next) < v_xact);
END
$$;

-- An `apply` that changed which events of a stream are delivered. Transactions that were open then may
-- have appended by the old state, in sessions and lanes that the apply could not see. So the stream's
-- sessions are walked again when the last of them is over, and the row goes.
CREATE TABLE lanekeeper.stream_change (
    stream_id  int NOT NULL,
    -- The transaction of the apply.
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- snapshots: somebody may still look at the state before `barrier`.
    -- transactions: nobody does, but what was written by such a look may not be committed yet.
    -- last: all of that is over: the walk that ends the change is due.
    stage      text NOT NULL DEFAULT 'snapshots',
    barrier    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- When the next walk begins. Before the last one there are others, ever less often: the barrier may
    -- be held up by what has nothing to do with the stream.
    walk_at    timestamptz NOT NULL DEFAULT clock_timestamp() + interval '1 s',
    -- The last session of the walk that is under way.
    walked_to  bigint,
    -- That walk left out a session which a producer was at.
    passed_over boolean NOT NULL DEFAULT false,
    PRIMARY KEY (stream_id, xact),
    CONSTRAINT stage_is_known CHECK (stage IN ('snapshots', 'transactions', 'last'))
);

-- Heals what earlier releases left behind.
INSERT INTO lanekeeper.stream_change (stream_id)
SELECT DISTINCT s.stream_id FROM lanekeeper.subscription AS s WHERE s.removed_at IS NULL;

-- Of these sessions, all of one stream: adds the lanes to those that lack one of a subscription from the
-- earliest event, or of p_subscription_id. Waits for nobody: a session whose append lock is taken is passed
-- over. Returns how many were, and how many sessions got lanes.
-- Index: lane's unique (session_id, subscription_id). Rows: those given.
CREATE FUNCTION lanekeeper.add_missing_lanes(
    IN p_stream_id int, IN p_subscription_id int, IN p_session_ids bigint[], OUT added bigint, OUT passed_over bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_version bigint;
    v_lacking bigint[];
    v_ids     bigint[];
    v_newest  bigint[];
    v_today   date;
BEGIN
    added := 0; passed_over := 0;
    -- Before the locks: a subscription that is added later finds the sessions at an older version.
    SELECT t.lanes_version INTO STRICT v_version
    FROM lanekeeper.stream AS t WHERE t.stream_id = p_stream_id;
    SELECT array_agg(u.session_id) INTO v_lacking
    FROM unnest(p_session_ids) AS u (session_id)
    JOIN lanekeeper.session AS n ON n.session_id = u.session_id
    -- A session at rest has no event that a lane would be for.
    WHERE n.lanes_version <> -2 AND EXISTS (
        SELECT FROM lanekeeper.subscription AS s
        WHERE s.stream_id = p_stream_id AND s.removed_at IS NULL
          AND (s.start_from = 'earliest' OR s.subscription_id = p_subscription_id)
          -- By the session alone: there is an index by subscription too, which an empty table makes look as good.
          AND NOT EXISTS (
              SELECT FROM (
                  SELECT l.subscription_id FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0
              ) AS l WHERE l.subscription_id = s.subscription_id)
        OFFSET 0);
    IF v_lacking IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(t.session_id) FILTER (WHERE t.locked), count(*) FILTER (WHERE NOT t.locked)
    INTO v_ids, passed_over
    FROM (
        SELECT u.session_id, pg_try_advisory_xact_lock(lanekeeper.append_lock(u.session_id)) AS locked
        FROM unnest(v_lacking) AS u (session_id)
    ) AS t;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    v_today := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    SELECT array_agg(n.seq ORDER BY u.ord) INTO v_newest
    FROM unnest(v_ids) WITH ORDINALITY AS u (session_id, ord)
    CROSS JOIN LATERAL lanekeeper.newest_event(u.session_id, v_today) AS n;
    PERFORM lanekeeper.create_lanes(v_ids, v_newest, p_stream_id, v_version, v_today);
    added := cardinality(v_ids);
END
$$;

-- Adds the lanes that a subscription lacks in sessions that existed before it, `p_limit` sessions at a
-- time, and wakes them where it starts at the earliest event. Returns the last session_id handled, NULL
-- when there is none after `p_after_session`. A session that a producer is at is left to housekeeping.
CREATE OR REPLACE FUNCTION lanekeeper.add_lanes(p_subscription_id int, p_after_session bigint, p_limit int)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_stream_id int;
    v_ids       bigint[];
    v_done      record;
BEGIN
    SELECT s.stream_id INTO STRICT v_stream_id
    FROM lanekeeper.subscription AS s WHERE s.subscription_id = p_subscription_id;
    SELECT array_agg(b.session_id ORDER BY b.session_id) INTO v_ids
    FROM (
        SELECT s.session_id FROM lanekeeper.session AS s
        WHERE s.stream_id = v_stream_id AND s.session_id > p_after_session
        ORDER BY s.session_id LIMIT p_limit
    ) AS b;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT a.added, a.passed_over INTO v_done
    FROM lanekeeper.add_missing_lanes(v_stream_id, p_subscription_id, v_ids) AS a;
    IF v_done.added > 0 THEN
        PERFORM lanekeeper.ring();
    END IF;
    IF v_done.passed_over > 0 THEN
        INSERT INTO lanekeeper.stream_change (stream_id)
        SELECT v_stream_id
        WHERE NOT EXISTS (SELECT FROM lanekeeper.stream_change AS c WHERE c.stream_id = v_stream_id)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN v_ids[cardinality(v_ids)];
END
$$;

-- Whether a lane at this cursor has something to do: an event that its subscription receives, or so many
-- that it does not that a producer would wake the lane to pass them.
-- Index: event's primary key. Rows: at most filter_look_back().
CREATE FUNCTION lanekeeper.lane_is_due(
    p_session_id bigint, p_cursor bigint, p_cursor_day date, p_types text[]
) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM lanekeeper.event AS e
        WHERE e.session_id = p_session_id AND e.seq > p_cursor AND e.day >= p_cursor_day
          AND (p_types IS NULL OR e.event_type = ANY (p_types)
               OR e.seq >= p_cursor + lanekeeper.filter_look_back()));
END
$$;

-- One turn of the work that changes of subscriptions leave (I13): moves the changes on as what was open
-- then ends, and walks up to p_sessions sessions for one of them. In a walk, lanes that are missing are
-- added, and every lane with something to deliver gets a token: a spare one is harmless. One process at
-- a time; it waits for nobody and holds locks for this turn only.
-- Returns how many changes are unfinished, and whether there is more to do at once.
-- Index: session's primary key, lane's unique (session_id, subscription_id), progress' and event's
-- primary keys. Rows: p_sessions sessions; of each of their lanes at most filter_look_back() events.
CREATE FUNCTION lanekeeper.finish_changes(
    IN p_sessions int,
    OUT unfinished bigint, OUT more boolean,
    OUT sessions_walked bigint, OUT lanes_woken bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_change record;
    v_over   xid8[];
    v_seen   xid8[];
    v_ids    bigint[];
    v_last   bigint;
    v_done   record;
BEGIN
    unfinished := 0; more := false; sessions_walked := 0; lanes_woken := 0;
    IF NOT EXISTS (SELECT FROM lanekeeper.stream_change) THEN
        RETURN;
    END IF;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(3)) THEN
        SELECT count(*) INTO unfinished FROM lanekeeper.stream_change;
        RETURN;
    END IF;

    SELECT array_agg(c.barrier) INTO v_over FROM lanekeeper.stream_change AS c
    WHERE c.stage = 'transactions' AND lanekeeper.over_before(c.barrier);
    -- Before anything is written: whoever wrote by an old look had a number by the end of it, and this
    -- transaction's own, which is the next barrier, must be later.
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        SELECT array_agg(c.barrier) INTO v_seen FROM lanekeeper.stream_change AS c
        WHERE c.stage = 'snapshots' AND lanekeeper.seen_by_every_snapshot(c.barrier);
    END IF;
    UPDATE lanekeeper.stream_change AS c SET stage = 'last', walked_to = 0, passed_over = false
    WHERE c.barrier = ANY (v_over);
    UPDATE lanekeeper.stream_change AS c SET stage = 'transactions', barrier = pg_current_xact_id()
    WHERE c.barrier = ANY (v_seen);
    UPDATE lanekeeper.stream_change AS c SET walked_to = 0, passed_over = false
    WHERE c.walked_to IS NULL AND c.walk_at <= clock_timestamp();

    SELECT c.stream_id, c.xact, c.stage, c.walked_to, c.passed_over INTO v_change
    FROM lanekeeper.stream_change AS c WHERE c.walked_to IS NOT NULL
    ORDER BY c.stage = 'last' DESC, c.xact LIMIT 1;
    IF FOUND THEN
        SELECT array_agg(b.session_id) FILTER (WHERE b.stream_id = v_change.stream_id),
               max(b.session_id), count(*)
        INTO v_ids, v_last, sessions_walked
        FROM (
            SELECT s.session_id, s.stream_id FROM lanekeeper.session AS s
            WHERE s.session_id > v_change.walked_to
            ORDER BY s.session_id LIMIT p_sessions
        ) AS b;
        IF v_ids IS NOT NULL THEN
            SELECT a.added, a.passed_over INTO v_done
            FROM lanekeeper.add_missing_lanes(v_change.stream_id, NULL, v_ids) AS a;
            v_change.passed_over := v_change.passed_over OR v_done.passed_over > 0;
            -- Whoever waits for a retry has its token; and so has a lane with a long run of events that
            -- the filter leaves out, once it is longer than a producer looks back.
            INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
            SELECT l.route, 0, clock_timestamp(), l.lane_id
            FROM unnest(v_ids) AS u (session_id)
            CROSS JOIN LATERAL (
                SELECT l.lane_id, l.session_id, l.subscription_id, l.route
                FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0
            ) AS l
            JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
            CROSS JOIN LATERAL (
                SELECT p.cursor, p.cursor_day, p.parked_at, p.retry_at
                FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
                ORDER BY p.version DESC LIMIT 1
            ) AS p
            WHERE p.parked_at IS NULL AND p.retry_at IS NULL
              AND lanekeeper.lane_is_due(l.session_id, p.cursor, p.cursor_day, s.events);
            GET DIAGNOSTICS lanes_woken = ROW_COUNT;
            IF v_done.added + lanes_woken > 0 THEN
                PERFORM lanekeeper.ring();
            END IF;
        END IF;

        IF sessions_walked = p_sessions THEN
            UPDATE lanekeeper.stream_change AS c SET walked_to = v_last, passed_over = v_change.passed_over
            WHERE c.stream_id = v_change.stream_id AND c.xact = v_change.xact;
        ELSIF v_change.stage = 'last' AND NOT v_change.passed_over THEN
            DELETE FROM lanekeeper.stream_change AS c
            WHERE c.stream_id = v_change.stream_id AND c.xact = v_change.xact;
        ELSE
            -- As long again as the change is old: a barrier that never falls costs a walk an hour.
            UPDATE lanekeeper.stream_change AS c
            SET walked_to = NULL, passed_over = v_change.passed_over,
                walk_at = clock_timestamp()
                    + greatest(interval '1 s', least(clock_timestamp() - c.changed_at, interval '1 hour'))
            WHERE c.stream_id = v_change.stream_id AND c.xact = v_change.xact;
        END IF;
    END IF;
    SELECT count(*), coalesce(bool_or(c.walked_to IS NOT NULL), false) INTO unfinished, more
    FROM lanekeeper.stream_change AS c;
END
$$;

-- Takes over from connections that are gone: wakes the lanes that they held. A worker does this for
-- its own connections, and for those of a worker that is gone as a whole: then the heads that it had
-- taken and not settled are charged a crash each, unless the server itself restarted, crashed or failed
-- over and took the connections with it. A peer that lives takes care of its own; one that is frozen is taken over once
-- its connections have been ended (terminate_frozen), without a charge.
--
-- Rows of workers are removed in a loop: a plan may evaluate a lock function before the other conditions,
-- and take the liveness lock of a worker that stays.
CREATE OR REPLACE FUNCTION lanekeeper.take_over(p_own_worker_id bigint, p_frozen_after_ms bigint)
RETURNS TABLE (worker_id bigint, connections bigint, lanes bigint, charged bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_worker record;
    v_charge boolean;
    v_all    boolean;
    v_gone   bigint[];
    v_lanes  bigint[];
    v_busy   bigint[];
    v_woken  bigint := 0;
BEGIN
    -- By worker, because a lane may stand in the claims of two of its connections: one that was going
    -- let it go, another took it up. One death is one charge.
    FOR v_worker IN
        SELECT c.worker_id, array_agg(c.connection_id) AS connection_ids, min(c.opened_at) AS opened_at,
               bool_and(c.epoch = e.epoch) AS same_epoch
        FROM lanekeeper.lane_connection AS c LEFT JOIN lanekeeper.server_epoch AS e ON true
        GROUP BY c.worker_id
    LOOP
        SELECT array_agg(t.connection_id) FILTER (WHERE t.gone), bool_and(t.gone) INTO v_gone, v_all
        FROM (
            SELECT u.connection_id, pg_try_advisory_xact_lock(lanekeeper.connection_lock(u.connection_id)) AS gone
            FROM unnest(v_worker.connection_ids) AS u (connection_id)
        ) AS t;
        CONTINUE WHEN v_gone IS NULL;
        v_charge := false;
        -- The own liveness lock would be granted to its own session again: hence the id.
        IF v_worker.worker_id <> p_own_worker_id THEN
            v_charge := pg_try_advisory_xact_lock(lanekeeper.worker_lock(v_worker.worker_id));
            CONTINUE WHEN v_charge AND NOT v_all;
            CONTINUE WHEN NOT v_charge AND EXISTS (
                SELECT FROM lanekeeper.worker AS w
                WHERE w.worker_id = v_worker.worker_id
                  AND w.beat_at > clock_timestamp() - p_frozen_after_ms * interval '1 ms');
            v_charge := v_charge AND v_worker.opened_at > pg_postmaster_start_time()
                AND coalesce(v_worker.same_epoch, false);
        END IF;
        -- Some may be gone meanwhile: another survivor took them over, or they closed cleanly.
        SELECT array_agg(c.connection_id) INTO v_gone
        FROM lanekeeper.lane_connection AS c WHERE c.connection_id = ANY (v_gone);
        CONTINUE WHEN v_gone IS NULL;

        SELECT array_agg(t.lane_id) FILTER (WHERE t.locked), array_agg(t.lane_id) FILTER (WHERE NOT t.locked)
        INTO v_lanes, v_busy
        FROM (
            SELECT h.lane_id, pg_try_advisory_xact_lock(lanekeeper.lane_lock(h.lane_id)) AS locked
            FROM (
                SELECT DISTINCT u.lane_id FROM lanekeeper.claim AS c CROSS JOIN unnest(c.lane_ids) AS u (lane_id)
                WHERE c.connection_id = ANY (v_gone)
            ) AS h
        ) AS t;

        charged := 0;
        IF v_charge THEN
            WITH head AS MATERIALIZED (
                SELECT DISTINCT ON (p.lane_id) p.*
                FROM lanekeeper.claim AS c
                CROSS JOIN unnest(c.lane_ids, c.versions, c.crashes) AS u (lane_id, version, crashes)
                CROSS JOIN LATERAL (
                    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = u.lane_id
                    ORDER BY p.version DESC LIMIT 1
                ) AS p
                WHERE c.connection_id = ANY (v_gone)
                  -- Nothing but other charges happened to the head since the claim.
                  AND p.version - u.version = p.crashes - u.crashes
                  AND p.parked_at IS NULL AND u.lane_id = ANY (v_lanes)
                  -- A lane that was only being looked at has no head to charge.
                  AND EXISTS (
                      SELECT FROM lanekeeper.lane AS l JOIN lanekeeper.event AS e ON e.session_id = l.session_id
                      WHERE l.lane_id = u.lane_id AND e.seq > p.cursor AND e.day >= p.cursor_day)
            ), gone AS (
                DELETE FROM lanekeeper.progress AS p USING head AS h
                WHERE p.lane_id = h.lane_id AND p.version = h.version
                RETURNING p.lane_id
            )
            INSERT INTO lanekeeper.progress
                (lane_id, version, cursor, cursor_day, attempts, crashes, retry_at, last_error)
            SELECT h.lane_id, h.version + 1, h.cursor, h.cursor_day, h.attempts, h.crashes + 1, h.retry_at,
                   coalesce(h.last_error, 'the worker died while it held this event')
            FROM head AS h JOIN gone AS g ON g.lane_id = h.lane_id;
            GET DIAGNOSTICS charged = ROW_COUNT;
        END IF;

        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
        SELECT l.route, 0, clock_timestamp(), l.lane_id
        FROM unnest(v_lanes) AS u (lane_id) JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id;
        IF v_busy IS NOT NULL THEN
            -- The server may be releasing these locks right now, one by one: look again. Or somebody
            -- claimed them before they could be charged: if that kills it too, both charges count; if
            -- it settles them, neither does.
            WITH kept AS (
                DELETE FROM lanekeeper.claim AS c WHERE c.connection_id = ANY (v_gone)
                RETURNING c.connection_id, c.claim_id, c.claimed_at, c.lane_ids, c.versions, c.crashes
            )
            INSERT INTO lanekeeper.claim (connection_id, claim_id, claimed_at, lane_ids, versions, crashes)
            SELECT k.connection_id, -k.claim_id, k.claimed_at,
                   array_agg(u.lane_id), array_agg(u.version), array_agg(u.crashes)
            FROM kept AS k CROSS JOIN unnest(k.lane_ids, k.versions, k.crashes) AS u (lane_id, version, crashes)
            WHERE u.lane_id = ANY (v_busy)
            GROUP BY 1, 2, 3;
        ELSE
            DELETE FROM lanekeeper.claim AS c WHERE c.connection_id = ANY (v_gone);
            DELETE FROM lanekeeper.lane_connection AS c WHERE c.connection_id = ANY (v_gone);
        END IF;

        worker_id := v_worker.worker_id;
        connections := cardinality(v_gone);
        lanes := coalesce(cardinality(v_lanes), 0);
        v_woken := v_woken + lanes;
        IF lanes > 0 OR v_busy IS NULL THEN
            RETURN NEXT;
        END IF;
    END LOOP;

    FOR v_worker IN
        SELECT DISTINCT w.worker_id FROM lanekeeper.worker AS w
        WHERE w.worker_id <> p_own_worker_id AND w.beat_at < clock_timestamp() - interval '10 s'
          AND NOT EXISTS (SELECT FROM lanekeeper.lane_connection AS c WHERE c.worker_id = w.worker_id)
    LOOP
        IF pg_try_advisory_xact_lock(lanekeeper.worker_lock(v_worker.worker_id)) THEN
            DELETE FROM lanekeeper.worker AS w
            WHERE w.worker_id = v_worker.worker_id AND w.beat_at < clock_timestamp() - interval '10 s'
              AND NOT EXISTS (SELECT FROM lanekeeper.lane_connection AS c WHERE c.worker_id = w.worker_id);
        END IF;
    END LOOP;
    IF v_woken > 0 THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;

-- Days of the log that are about to be dropped. Their sessions' last seqs were written by `xact`.
CREATE TABLE lanekeeper.leaving_day (
    day  date PRIMARY KEY,
    xact xid8 NOT NULL
);

-- Whether a lane still needs an event of a day: one that it has not delivered, or that a subscription
-- from the earliest event is to get where the lane is yet to be added.
CREATE FUNCTION lanekeeper.day_is_needed(p_day date) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_needed boolean;
BEGIN
    EXECUTE format($query$
        WITH e AS MATERIALIZED (
            SELECT e.session_id, max(e.seq) AS seq FROM lanekeeper.%1$I AS e GROUP BY 1
        )
        SELECT EXISTS (
            SELECT FROM e
            JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
            JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
            CROSS JOIN LATERAL (
                SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
                ORDER BY p.version DESC LIMIT 1) AS p
            WHERE p.cursor < e.seq AND (s.events IS NULL OR EXISTS (
                SELECT FROM lanekeeper.%1$I AS m
                WHERE m.session_id = e.session_id AND m.seq > p.cursor AND m.event_type = ANY (s.events)))
        ) OR EXISTS (
            SELECT FROM e
            JOIN lanekeeper.session AS n ON n.session_id = e.session_id
            JOIN lanekeeper.subscription AS s ON s.stream_id = n.stream_id AND s.removed_at IS NULL
            WHERE s.start_from = 'earliest'
              AND NOT EXISTS (
                  SELECT FROM lanekeeper.lane AS l
                  WHERE l.session_id = e.session_id AND l.subscription_id = s.subscription_id)
              AND (s.events IS NULL OR EXISTS (
                  SELECT FROM lanekeeper.%1$I AS m
                  WHERE m.session_id = e.session_id AND m.event_type = ANY (s.events)))
        )
        $query$, 'event_' || to_char(p_day, 'YYYYMMDD')) INTO v_needed;
    RETURN v_needed;
END
$$;

-- Drops the partition of one day, unless a lane still needs an event of it. In two calls, each a
-- transaction of its own: the first writes the last seq of sessions that have no newer event to
-- session_tail. The second drops, when no snapshot is left that misses those: in REPEATABLE READ such a
-- producer would see neither the events nor the tail, and begin at 1 again.
--
-- Whether the day is needed is judged again under locks that keep the answer: nothing is written to the
-- day (a producer may have appended to it before it passed, and not committed), and no apply changes
-- what a lane is to get. Only the drop itself locks the log. Returns dropped | needed | busy.
CREATE OR REPLACE FUNCTION lanekeeper.drop_event_partition(p_day date) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_name  text := 'event_' || to_char(p_day, 'YYYYMMDD');
    v_xact  xid8;
    v_tails bigint;
BEGIN
    IF p_day >= (clock_timestamp() AT TIME ZONE 'UTC')::date OR lanekeeper.day_is_needed(p_day) THEN
        RETURN 'needed';
    END IF;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.apply_lock()) THEN
        RETURN 'busy';
    END IF;
    EXECUTE format('LOCK TABLE ONLY lanekeeper.%I IN SHARE MODE', v_name);
    IF lanekeeper.day_is_needed(p_day) THEN
        RETURN 'needed';
    END IF;
    EXECUTE format($query$
        WITH tail AS (
            INSERT INTO lanekeeper.session_tail (session_id, seq)
            SELECT e.session_id, max(e.seq) FROM lanekeeper.%I AS e
            WHERE NOT EXISTS (
                SELECT FROM lanekeeper.event AS newer WHERE newer.session_id = e.session_id AND newer.day > %L::date)
            GROUP BY 1
            ON CONFLICT DO NOTHING
            RETURNING session_id, seq
        ), superseded AS (
            DELETE FROM lanekeeper.session_tail AS t USING tail
            WHERE t.session_id = tail.session_id AND t.seq < tail.seq
        )
        SELECT count(*) FROM tail
        $query$, v_name, p_day) INTO v_tails;
    SELECT d.xact INTO v_xact FROM lanekeeper.leaving_day AS d WHERE d.day = p_day;
    IF v_xact IS NULL OR v_tails > 0 THEN
        INSERT INTO lanekeeper.leaving_day AS d (day, xact) VALUES (p_day, pg_current_xact_id())
        ON CONFLICT (day) DO UPDATE SET xact = excluded.xact;
        RETURN 'busy';
    END IF;
    IF NOT lanekeeper.seen_by_every_snapshot(v_xact) THEN
        RETURN 'busy';
    END IF;
    -- Producers queue behind this request: it gives up soon, and the next round tries again.
    EXECUTE format('LOCK TABLE ONLY lanekeeper.event, ONLY lanekeeper.%I IN ACCESS EXCLUSIVE MODE', v_name);
    EXECUTE format('DROP TABLE lanekeeper.%I', v_name);
    DELETE FROM lanekeeper.leaving_day AS d WHERE d.day = p_day;
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN
        RETURN 'busy';
    -- Somebody's view on the partition, say: the rest of housekeeping goes on.
    WHEN dependent_objects_still_exist OR insufficient_privilege THEN
        RAISE WARNING 'day % of the log cannot be dropped: %', p_day, SQLERRM;
        RETURN 'needed';
END
$$;

-- One round: partitions made ahead and dropped behind, up to 10,000 old keys of each kind forgotten. One
-- process at a time; for the others there is nothing to do.
CREATE OR REPLACE FUNCTION lanekeeper.keep_house(
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
    -- A producer may be making today's: it is not waited for, with what this transaction locks.
    IF pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(1)) THEN
        partitions_created := lanekeeper.create_event_partitions();
    END IF;

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

-- What goes after its time is found by it. A settlement writes to the first two only for what was not
-- plainly delivered, and where a subscription asks for a history.
CREATE INDEX outcome_by_age ON lanekeeper.outcome (settled_at);
CREATE INDEX history_by_age ON lanekeeper.history (settled_at);
CREATE INDEX dead_resolved ON lanekeeper.dead (resolved_at) WHERE resolution IS NOT NULL;

-- Forgets up to p_limit rows each of what is older than its retention: outcomes, history, and dead
-- letters that somebody has dealt with; those that wait for an operator stay. An outcome stays as long as
-- its event: without it the event would count as delivered. One process at a time; for the others there
-- is nothing to do. The caller calls again while a kind reached the limit.
-- Index: outcome_by_age, history_by_age, dead_resolved. Rows: at most p_limit each.
CREATE FUNCTION lanekeeper.forget_records(
    IN p_outcome_days int, IN p_history_days int, IN p_dead_letter_days int, IN p_limit int,
    OUT outcomes bigint, OUT histories bigint, OUT dead_letters bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_oldest date;
    v_before timestamptz;
BEGIN
    outcomes := 0; histories := 0; dead_letters := 0;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(2)) THEN
        RETURN;
    END IF;
    -- Nothing is settled before it is appended. A day to spare, for a clock that was set back.
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) - 1 INTO v_oldest
    FROM pg_catalog.pg_inherits AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'lanekeeper.event'::regclass;
    v_before := least(v_now - p_outcome_days * interval '1 day', v_oldest::timestamp AT TIME ZONE 'UTC');

    DELETE FROM lanekeeper.outcome AS o
    USING (
        SELECT x.lane_id, x.seq FROM lanekeeper.outcome AS x WHERE x.settled_at < v_before
        ORDER BY x.settled_at LIMIT p_limit
    ) AS x
    WHERE o.lane_id = x.lane_id AND o.seq = x.seq;
    GET DIAGNOSTICS outcomes = ROW_COUNT;

    DELETE FROM lanekeeper.history AS h
    USING (
        SELECT x.lane_id, x.from_seq, x.settled_at FROM lanekeeper.history AS x
        WHERE x.settled_at < v_now - p_history_days * interval '1 day'
        ORDER BY x.settled_at LIMIT p_limit
    ) AS x
    WHERE h.lane_id = x.lane_id AND h.from_seq = x.from_seq AND h.settled_at = x.settled_at;
    GET DIAGNOSTICS histories = ROW_COUNT;

    DELETE FROM lanekeeper.dead AS d
    USING (
        SELECT x.dead_id FROM lanekeeper.dead AS x
        WHERE x.resolution IS NOT NULL AND x.resolved_at < v_now - p_dead_letter_days * interval '1 day'
        ORDER BY x.resolved_at LIMIT p_limit
    ) AS x
    WHERE d.dead_id = x.dead_id;
    GET DIAGNOSTICS dead_letters = ROW_COUNT;
END
$$;

-- A session whose last event is gone from the log, and of which nothing else is left, needs no lanes: an
-- append adds them again, behind the events before it. The session's name and its last seq stay for ever,
-- since no two events may have one number.
--
-- session.lanes_version: -1, the lanes are about to go; -2, they are gone. Either differs from every
-- stream's: an append that sees it looks for missing lanes and writes the session's row. So an append that
-- does not see the first is waited for, one that does and has a snapshot from before the second is refused
-- with 40001, and any other finds no lanes and adds them.
CREATE TABLE lanekeeper.leaving_session (
    session_id bigint PRIMARY KEY,
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX leaving_session_by_xact ON lanekeeper.leaving_session (xact);

-- How far the present round over all sessions has come; 0 between two rounds.
CREATE TABLE lanekeeper.session_round (
    single    boolean PRIMARY KEY DEFAULT true,
    walked_to bigint NOT NULL DEFAULT 0,
    begun_at  timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT one_row CHECK (single)
);
INSERT INTO lanekeeper.session_round DEFAULT VALUES;

-- Whether a session has lanes and nothing else: no event, no retry, no operator's doing, no record, and
-- none of its lanes has moved for so many days.
CREATE FUNCTION lanekeeper.session_may_rest(p_session_id bigint, p_days int) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM lanekeeper.event AS e WHERE e.session_id = p_session_id)
        AND EXISTS (SELECT FROM lanekeeper.lane AS l WHERE l.session_id = p_session_id)
        AND NOT EXISTS (
            SELECT FROM lanekeeper.lane AS l
            CROSS JOIN LATERAL (
                SELECT s.removed_at FROM lanekeeper.subscription AS s
                WHERE s.subscription_id = l.subscription_id OFFSET 0
            ) AS s
            CROSS JOIN LATERAL (
                SELECT p.parked_at, p.retry_at, p.changed_at FROM lanekeeper.progress AS p
                WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
            ) AS p
            WHERE l.session_id = p_session_id
              AND (s.removed_at IS NULL AND (p.parked_at IS NOT NULL OR p.retry_at IS NOT NULL)
                   OR p.changed_at > clock_timestamp() - p_days * interval '1 day'
                   OR EXISTS (SELECT FROM lanekeeper.dead AS d WHERE d.lane_id = l.lane_id OFFSET 0)
                   OR EXISTS (SELECT FROM lanekeeper.outcome AS o WHERE o.lane_id = l.lane_id OFFSET 0)
                   OR EXISTS (SELECT FROM lanekeeper.history AS h WHERE h.lane_id = l.lane_id OFFSET 0)));
END
$$;

-- One turn: removes the lanes of up to 50 sessions that were marked for it, as soon as no snapshot is
-- left that misses the mark; else looks at the next p_sessions sessions and marks those that may rest. A
-- round over all of them begins once an hour at most. Whatever is not free at the moment is left for the
-- next round. One process at a time. Returns whether there is more to do at once.
-- Index: session's, event's, progress' primary keys, lane's unique (session_id, subscription_id); the
-- tokens of the routes concerned are walked. Rows: p_sessions sessions, one event of each day for each.
CREATE FUNCTION lanekeeper.rest_sessions(
    IN p_days int, IN p_sessions int, OUT marked bigint, OUT rested bigint, OUT more boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_xact    xid8;
    v_round   record;
    v_chosen  bigint[];
    v_ids     bigint[];
    v_lanes   bigint[];
    v_routes  int[];
    v_last    bigint;
    v_walked  bigint;
BEGIN
    marked := 0; rested := 0; more := false;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(2)) THEN
        RETURN;
    END IF;

    SELECT s.xact INTO v_xact FROM lanekeeper.leaving_session AS s ORDER BY s.xact LIMIT 1;
    -- An apply gives tokens to lanes that it saw: none is under way until this turn ends.
    IF FOUND AND lanekeeper.seen_by_every_snapshot(v_xact) AND pg_try_advisory_xact_lock(lanekeeper.apply_lock()) THEN
        SELECT array_agg(c.session_id) INTO v_chosen
        FROM (
            SELECT s.session_id FROM lanekeeper.leaving_session AS s WHERE s.xact = v_xact LIMIT 50
        ) AS c;
        -- Against producers, then against holders, survivors and operators.
        SELECT array_agg(t.session_id) INTO v_ids
        FROM (
            SELECT u.session_id, pg_try_advisory_xact_lock(lanekeeper.append_lock(u.session_id)) AS locked
            FROM unnest(v_chosen) AS u (session_id)
        ) AS t WHERE t.locked;
        SELECT array_agg(t.session_id) INTO v_ids
        FROM (
            SELECT h.session_id, bool_and(pg_try_advisory_xact_lock(lanekeeper.lane_lock(h.lane_id))) AS locked
            FROM (
                SELECT l.session_id, l.lane_id FROM unnest(v_ids) AS u (session_id)
                CROSS JOIN LATERAL (
                    SELECT l.session_id, l.lane_id FROM lanekeeper.lane AS l
                    WHERE l.session_id = u.session_id OFFSET 0) AS l
            ) AS h
            GROUP BY 1
        ) AS t WHERE t.locked;
        -- In a statement of its own: what was written before the locks is seen. Only the lanes that were
        -- locked go: under the append lock none is added.
        SELECT array_agg(s.session_id) INTO v_ids
        FROM unnest(v_ids) AS u (session_id)
        JOIN lanekeeper.session AS s ON s.session_id = u.session_id
        WHERE s.lanes_version = -1 AND lanekeeper.session_may_rest(s.session_id, p_days);
        SELECT array_agg(l.lane_id), array_agg(DISTINCT l.route) INTO v_lanes, v_routes
        FROM unnest(v_ids) AS u (session_id)
        CROSS JOIN LATERAL (
            SELECT l.lane_id, l.route FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0) AS l;
        -- A claim must find the lane of every token.
        DELETE FROM lanekeeper.ready AS r WHERE r.route = ANY (v_routes) AND r.lane_id = ANY (v_lanes);
        DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = ANY (v_lanes);
        DELETE FROM lanekeeper.lane AS l WHERE l.lane_id = ANY (v_lanes);
        -- What the registry knows of it: prompts must not outlive the log without end.
        DELETE FROM lanekeeper.agent_session AS a WHERE a.session_id = ANY (v_ids);
        UPDATE lanekeeper.session AS s SET lanes_version = -2 WHERE s.session_id = ANY (v_ids);
        DELETE FROM lanekeeper.leaving_session AS s WHERE s.session_id = ANY (v_chosen);
        rested := coalesce(cardinality(v_ids), 0);
        more := true;
        RETURN;
    END IF;

    SELECT r.walked_to, r.begun_at INTO v_round FROM lanekeeper.session_round AS r;
    IF v_round.walked_to = 0 THEN
        IF v_round.begun_at > clock_timestamp() - interval '1 hour' THEN
            RETURN;
        END IF;
        UPDATE lanekeeper.session_round AS r SET begun_at = clock_timestamp() WHERE r.single;
    END IF;
    SELECT max(b.session_id), count(*),
           array_agg(b.session_id) FILTER (WHERE b.lanes_version >= -1 AND NOT b.leaving
               AND b.created_at < clock_timestamp() - p_days * interval '1 day'
               AND lanekeeper.session_may_rest(b.session_id, p_days))
    INTO v_last, v_walked, v_chosen
    FROM (
        SELECT s.session_id, s.lanes_version, s.created_at,
               EXISTS (SELECT FROM lanekeeper.leaving_session AS v WHERE v.session_id = s.session_id OFFSET 0) AS leaving
        FROM lanekeeper.session AS s WHERE s.session_id > v_round.walked_to
        ORDER BY s.session_id LIMIT p_sessions
    ) AS b;
    SELECT array_agg(t.session_id) INTO v_ids
    FROM (
        SELECT u.session_id, pg_try_advisory_xact_lock(lanekeeper.append_lock(u.session_id)) AS locked
        FROM unnest(v_chosen) AS u (session_id)
    ) AS t WHERE t.locked;
    IF v_ids IS NOT NULL THEN
        UPDATE lanekeeper.session AS s SET lanes_version = -1 WHERE s.session_id = ANY (v_ids);
        INSERT INTO lanekeeper.leaving_session (session_id) SELECT u.session_id FROM unnest(v_ids) AS u (session_id);
        marked := cardinality(v_ids);
    END IF;
    more := v_walked = p_sessions OR marked > 0;
    UPDATE lanekeeper.session_round AS r SET walked_to = CASE WHEN v_walked = p_sessions THEN v_last ELSE 0 END
    WHERE r.single;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lanekeeper FROM PUBLIC;
