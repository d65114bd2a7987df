-- Claiming, settling and taking over. Called by lane connections only, in READ COMMITTED and with
-- the planner settings of store/connection.rs. See ARCHITECTURE.md, "Claiming" and "Settling".

CREATE FUNCTION lanekeeper.worker_lock(worker_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497496566228844544 + worker_id;

-- Walks the due tokens of the given routes, highest priority first, and takes the lane locks of up
-- to p_limit lanes. Writes nothing but the claim's own row: the tokens stay, so that a crash at
-- any point leaves them there.
--
-- p_bounds: no token of the route that was seen live is due earlier; '-infinity' walks all.
-- p_held: lanes that this connection holds already, in ascending order (session locks are
-- re-entrant, and every held lane's token may be walked: they are looked up by bisection).
-- Returns a row per lane; and a row per route with lane_id NULL, where due_at is the next bound
-- and retry_in_ms, if the walk took nothing, the time until the route's next token is due.
--
-- OFFSET 0 keeps the lock above the walk whatever the plan below is, and LIMIT stops the walk: no lock
-- is taken that is not returned. Rows are locked as they are walked, and skipped where another claim or
-- a settlement is at them: what is skipped is seen by the next walk.
-- Index: ready's primary key.
CREATE FUNCTION lanekeeper.claim(
    p_connection_id bigint, p_claim_id bigint,
    p_routes int[], p_rooms int[], p_bounds timestamptz[], p_limit int, p_held bigint[]
) RETURNS TABLE (
    lane_id bigint, route int, priority smallint, due_at timestamptz, token_id bigint,
    session_id bigint, session text, version bigint, cursor bigint, cursor_day date,
    attempts int, crashes int, retry_in_ms bigint, parked boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now        timestamptz := clock_timestamp();
    v_levels     smallint[];
    v_priority   smallint;
    v_share      int := greatest(1, p_limit / greatest(1, cardinality(p_routes)));
    v_room       int;
    v_full       boolean;
    v_first      timestamptz;
    v_bounds     timestamptz[] := p_bounds;
    v_rooms      int[] := p_rooms;
    v_some       lanekeeper.ready[];
    v_taken      lanekeeper.ready[] := '{}';
    v_held       bigint[] := p_held;
    -- Lanes were taken that v_held lacks.
    v_more       boolean := false;
BEGIN
    SELECT array_agg(l.priority ORDER BY l.priority DESC) INTO v_levels FROM lanekeeper.priority_level AS l;
    -- A token is due from its append on and seen from the commit on: the bound stays a little behind,
    -- so that the next walk sees it.
    FOR i IN 1 .. cardinality(p_routes) LOOP
        v_bounds[i] := greatest(p_bounds[i], v_now - interval '50 ms');
    END LOOP;

    -- First every route gets its share, then whoever has more.
    FOR pass IN 1 .. 2 LOOP
        v_full := false;
        FOREACH v_priority IN ARRAY v_levels LOOP
            FOR i IN 1 .. cardinality(p_routes) LOOP
                v_room := least(v_rooms[i], p_limit - cardinality(v_taken));
                IF pass = 1 AND v_room > v_share THEN
                    v_room := v_share;
                END IF;
                IF v_room <= 0 THEN
                    -- Not looked at: nothing is known of where its tokens begin.
                    v_bounds[i] := p_bounds[i];
                    CONTINUE;
                END IF;
                SELECT r.due_at INTO v_first
                FROM lanekeeper.ready AS r
                WHERE r.route = p_routes[i] AND r.priority = v_priority
                  AND r.due_at >= p_bounds[i] AND r.due_at <= v_now
                ORDER BY r.due_at, r.id LIMIT 1;
                CONTINUE WHEN NOT FOUND;
                v_bounds[i] := least(v_bounds[i], v_first);
                IF v_more THEN
                    SELECT array_agg(h.lane_id ORDER BY h.lane_id) INTO v_held
                    FROM (SELECT unnest(p_held) UNION SELECT t.lane_id FROM unnest(v_taken) AS t) AS h (lane_id);
                    v_more := false;
                END IF;

                SELECT coalesce(array_agg(t.token), '{}') INTO v_some
                FROM (
                    SELECT w.token
                    FROM (
                        SELECT r AS token, r.lane_id
                        FROM lanekeeper.ready AS r
                        WHERE r.route = p_routes[i] AND r.priority = v_priority
                          AND r.due_at >= v_first AND r.due_at <= v_now
                          AND v_held[width_bucket(r.lane_id, v_held)] IS DISTINCT FROM r.lane_id
                        ORDER BY r.due_at, r.id
                        OFFSET 0
                        FOR UPDATE SKIP LOCKED
                    ) AS w
                    WHERE pg_try_advisory_lock(lanekeeper.lane_lock(w.lane_id))
                    LIMIT v_room
                ) AS t;
                v_taken := v_taken || v_some;
                v_more := cardinality(v_some) > 0;
                v_rooms[i] := v_rooms[i] - cardinality(v_some);
                v_full := v_full OR pass = 1 AND cardinality(v_some) = v_room;
            END LOOP;
        END LOOP;
        EXIT WHEN NOT v_full OR cardinality(p_routes) = 1 OR cardinality(v_taken) >= p_limit;
    END LOOP;

    -- A lane that has two tokens in one walk was locked twice: the later one stays for another time.
    IF (SELECT count(DISTINCT t.lane_id) FROM unnest(v_taken) AS t) < cardinality(v_taken) THEN
        PERFORM pg_advisory_unlock(lanekeeper.lane_lock(d.lane_id))
        FROM (SELECT t.lane_id, count(*) - 1 AS spare FROM unnest(v_taken) AS t GROUP BY 1) AS d
        CROSS JOIN LATERAL generate_series(1, d.spare);
        SELECT array_agg(d.token) INTO v_taken
        FROM (
            SELECT DISTINCT ON (t.lane_id) t AS token FROM unnest(v_taken) AS t
            ORDER BY t.lane_id, t.priority DESC, t.due_at, t.id
        ) AS d;
    END IF;

    RETURN QUERY
    SELECT NULL::bigint, u.route, NULL::smallint, u.bound, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
           NULL::bigint, NULL::date, NULL::int, NULL::int, n.due_in_ms, NULL::boolean
    FROM unnest(p_routes, v_bounds) AS u (route, bound)
    LEFT JOIN LATERAL (
        SELECT min(ceil(extract(epoch FROM n.due_at - v_now) * 1000)::bigint) AS due_in_ms
        FROM unnest(v_levels) AS l (priority)
        CROSS JOIN LATERAL (
            SELECT r.due_at FROM lanekeeper.ready AS r
            WHERE r.route = u.route AND r.priority = l.priority AND r.due_at > v_now
            ORDER BY r.due_at, r.id LIMIT 1
        ) AS n
        WHERE cardinality(v_taken) = 0
    ) AS n ON true;

    -- A statement of its own: its snapshot is taken after the locks.
    IF cardinality(v_taken) > 0 THEN
        RETURN QUERY
        WITH taken AS MATERIALIZED (
            SELECT u.lane_id, u.route, u.priority, u.due_at, u.id AS token_id, l.session_id, s.name,
                   p.version, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at
            FROM unnest(v_taken) AS u
            JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id
            JOIN lanekeeper.session AS s ON s.session_id = l.session_id
            CROSS JOIN LATERAL (
                SELECT p.version, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at
                FROM lanekeeper.progress AS p WHERE p.lane_id = u.lane_id
                ORDER BY p.version DESC LIMIT 1
            ) AS p
        ), recorded AS (
            INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
            SELECT p_connection_id, p_claim_id, array_agg(t.lane_id), array_agg(t.version),
                   array_agg(CASE WHEN t.crashes < 2 THEN t.crashes END)
            FROM taken AS t
        )
        SELECT t.lane_id, t.route, t.priority, t.due_at, t.token_id, t.session_id, t.name, t.version, t.cursor,
               t.cursor_day, t.attempts, t.crashes,
               greatest(0, ceil(extract(epoch FROM t.retry_at - v_now) * 1000))::bigint, t.parked_at IS NOT NULL
        FROM taken AS t;
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
-- Where `changed` is false, progress is not written. `p_outcome_ords` are places in `p_lanes`. Returns a row per lane:
--   0 lost     somebody else settled the lane: nothing was written for it
--   1 done     as asked
--   2 idle     finish: nothing is left
--   3 more     finish: there are newer events
--   4 busy     finish: a producer holds the session's append lock, the token stays
-- The caller unlocks, after this has committed, what is no longer its own.
CREATE FUNCTION lanekeeper.settle(
    p_worker_id bigint,
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_operations smallint[], p_changed boolean[],
    p_cursors bigint[], p_days date[], p_attempts int[], p_crashes int[], p_delays_ms bigint[], p_errors text[],
    p_routes int[], p_priorities smallint[], p_dues timestamptz[], p_token_ids bigint[], p_history_from bigint[],
    p_outcome_ords int[], p_outcome_seqs bigint[], p_outcome_kinds text[], p_outcome_replaced_by bigint[],
    p_outcome_errors text[], p_outcome_attempts int[], p_outcome_crashes int[]
) RETURNS TABLE (lane_id bigint, result smallint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_hits   bigint[];
    v_ord    bigint;
    v_hit    boolean[];
    v_locked boolean[];
    v_idle   boolean[];
BEGIN
    -- The compare-and-set (I5): the next version goes in only where the delete hit. What it needs is
    -- carried along by the delete: joining the arguments to themselves would be a nested loop over
    -- all pairs of lanes.
    WITH gone AS (
        DELETE FROM lanekeeper.progress AS p
        USING unnest(p_lanes, p_versions, p_changed, p_operations, p_cursors, p_days, p_attempts, p_crashes,
                     p_delays_ms, p_errors) WITH ORDINALITY
              AS u (lane_id, version, changed, operation, cursor, day, attempts, crashes, delay_ms, error, ord)
        WHERE u.changed AND p.lane_id = u.lane_id AND p.version = u.version
        RETURNING u.*
    ), next AS (
        INSERT INTO lanekeeper.progress
            (lane_id, version, cursor, cursor_day, attempts, crashes, retry_at, parked_at, last_error, changed_at)
        SELECT g.lane_id, g.version + 1, g.cursor, g.day, g.attempts, g.crashes,
               CASE WHEN g.operation = 3 THEN v_now + g.delay_ms * interval '1 ms' END,
               CASE WHEN g.operation = 4 THEN v_now END,
               g.error, v_now
        FROM gone AS g
    )
    SELECT array_agg(g.ord) INTO v_hits FROM gone AS g;
    SELECT array_agg(NOT u.changed ORDER BY u.ord) INTO v_hit
    FROM unnest(p_changed) WITH ORDINALITY AS u (changed, ord);
    IF v_hits IS NOT NULL THEN
        FOREACH v_ord IN ARRAY v_hits LOOP
            v_hit[v_ord] := true;
        END LOOP;
    END IF;

    IF cardinality(p_outcome_ords) > 0 THEN
        WITH due AS MATERIALIZED (
            SELECT o.*, p_lanes[o.ord] AS lane_id, p_sessions[o.ord] AS session_id
            FROM unnest(p_outcome_ords, p_outcome_seqs, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                        p_outcome_attempts, p_outcome_crashes)
                 AS o (ord, seq, kind, replaced_by, error, attempts, crashes)
            WHERE v_hit[o.ord]
        ), dead AS (
            INSERT INTO lanekeeper.dead
                (lane_id, seq, message_id, event_type, payload, headers, created_at, attempts, crashes, error)
            SELECT d.lane_id, d.seq, e.message_id, e.event_type, e.payload, e.headers, e.created_at,
                   d.attempts, d.crashes, d.error
            FROM due AS d
            JOIN lanekeeper.event AS e ON e.session_id = d.session_id AND e.seq = d.seq
            WHERE d.kind = 'dead_lettered'
        )
        INSERT INTO lanekeeper.outcome (lane_id, seq, kind, replaced_by, error)
        SELECT d.lane_id, d.seq, d.kind, d.replaced_by, d.error FROM due AS d
        -- A replayed event may come to a second outcome; the first stays on record.
        ON CONFLICT DO NOTHING;
    END IF;

    INSERT INTO lanekeeper.history (lane_id, from_seq, to_seq, attempts, worker_id, settled_at)
    SELECT u.lane_id, u.history_from, u.cursor, u.attempts, p_worker_id, v_now
    FROM unnest(p_lanes, p_cursors, p_attempts, p_history_from, v_hit) AS u (lane_id, cursor, attempts, history_from, hit)
    WHERE u.hit AND u.history_from <= u.cursor;

    -- Shared with the other holders of the session's lanes, exclusive against its producers.
    SELECT array_agg(CASE WHEN u.operation = 2 AND u.hit
                          THEN pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(u.session_id))
                          ELSE false END ORDER BY u.ord)
    INTO v_locked
    FROM unnest(p_sessions, p_operations, v_hit) WITH ORDINALITY AS u (session_id, operation, hit, ord);

    -- In a statement of its own: its snapshot was taken after the append lock.
    SELECT array_agg(u.locked AND NOT EXISTS (
               SELECT FROM lanekeeper.event AS e
               WHERE e.session_id = u.session_id AND e.seq > u.cursor
                 AND e.day >= u.day) ORDER BY u.ord)
    INTO v_idle
    FROM unnest(p_sessions, p_cursors, p_days, v_locked) WITH ORDINALITY AS u (session_id, cursor, day, locked, ord);

    DELETE FROM lanekeeper.ready AS r
    USING unnest(p_routes, p_priorities, p_dues, p_token_ids, p_operations, v_hit, v_idle)
          AS u (route, priority, due_at, id, operation, hit, idle)
    WHERE (u.hit AND u.operation IN (3, 4, 5, 6) OR u.idle)
      AND r.route = u.route AND r.priority = u.priority AND r.due_at = u.due_at AND r.id = u.id;

    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT u.route, u.priority,
           CASE u.operation WHEN 3 THEN v_now + u.delay_ms * interval '1 ms' ELSE v_now END, u.lane_id
    FROM unnest(p_lanes, p_routes, p_priorities, p_operations, p_delays_ms, v_hit)
         AS u (lane_id, route, priority, operation, delay_ms, hit)
    WHERE u.hit AND u.operation IN (3, 5);

    RETURN QUERY
    SELECT u.lane_id,
           (CASE WHEN NOT u.hit THEN 0
                 WHEN u.operation <> 2 THEN 1
                 WHEN u.idle THEN 2
                 WHEN u.locked THEN 3
                 ELSE 4 END)::smallint
    FROM unnest(p_lanes, p_operations, v_hit, v_locked, v_idle) AS u (lane_id, operation, hit, locked, idle);
END
$$;

-- Marks lanes whose delivery takes long: each one's token is replaced by one due at the lock
-- time-out, so that claims need not walk it.
CREATE FUNCTION lanekeeper.mark(
    p_lanes bigint[], p_routes int[], p_priorities smallint[], p_dues timestamptz[], p_token_ids bigint[], p_delay_ms bigint
) RETURNS TABLE (lane_id bigint, due_at timestamptz, token_id bigint)
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (
        DELETE FROM lanekeeper.ready AS r
        USING unnest(p_routes, p_priorities, p_dues, p_token_ids) AS u (route, priority, due_at, id)
        WHERE r.route = u.route AND r.priority = u.priority AND r.due_at = u.due_at AND r.id = u.id
    )
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    SELECT u.route, u.priority, clock_timestamp() + p_delay_ms * interval '1 ms', u.lane_id
    FROM unnest(p_lanes, p_routes, p_priorities) AS u (lane_id, route, priority)
    RETURNING lane_id, due_at, id
$$;

-- Takes over from connections that are gone: wakes the lanes that they held. A worker does this for
-- its own connections, and for those of a worker that is gone as a whole: then the heads that it had
-- taken and not settled are charged a crash each, unless the server itself restarted, crashed or failed
-- over and took the connections with it. A peer that lives takes care of its own; one that is frozen is taken over once
-- its connections have been ended (terminate_frozen), without a charge.
CREATE FUNCTION lanekeeper.take_over(p_own_worker_id bigint, p_frozen_after_ms bigint)
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

    DELETE FROM lanekeeper.worker AS w
    WHERE NOT EXISTS (SELECT FROM lanekeeper.lane_connection AS c WHERE c.worker_id = w.worker_id)
      AND w.beat_at < clock_timestamp() - interval '10 s'
      AND w.worker_id <> p_own_worker_id
      AND pg_try_advisory_xact_lock(lanekeeper.worker_lock(w.worker_id));
    IF v_woken > 0 THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;

-- Ends the lane connections of workers whose heartbeat stopped while their sockets stay open: a
-- frozen process. Takes the same role as theirs, or pg_signal_backend.
--
-- A loop, because a plan may evaluate the terminating function before the other conditions.
CREATE FUNCTION lanekeeper.terminate_frozen(p_after_ms bigint) RETURNS TABLE (worker_id bigint, backend_pid int, silent_ms bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_frozen record;
BEGIN
    FOR v_frozen IN
        SELECT c.worker_id, c.backend_pid,
               (extract(epoch FROM clock_timestamp() - w.beat_at) * 1000)::bigint AS silent_ms
        FROM lanekeeper.lane_connection AS c
        CROSS JOIN LATERAL (
            SELECT w.beat_at FROM lanekeeper.worker AS w WHERE w.worker_id = c.worker_id
            ORDER BY w.version DESC LIMIT 1
        ) AS w
        JOIN pg_catalog.pg_stat_activity AS a ON a.pid = c.backend_pid AND a.backend_start = c.backend_start
        WHERE w.beat_at < clock_timestamp() - p_after_ms * interval '1 ms'
    LOOP
        IF pg_terminate_backend(v_frozen.backend_pid) THEN
            worker_id := v_frozen.worker_id;
            backend_pid := v_frozen.backend_pid;
            silent_ms := v_frozen.silent_ms;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lanekeeper FROM PUBLIC;
