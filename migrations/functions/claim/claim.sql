-- Claims up to p_limit lanes for a lane connection: scans the due ready entries of the given routes, highest priority
-- first, and takes the session-level lock of each entry's lane where it is free (I2).
--
-- It writes only its own row in `claim`, which tells survivors what the connection held. The ready entries stay, so a
-- crash at any point leaves them there (I13). What is due is judged by Postgres' clock alone (I6). Runs in READ COMMITTED,
-- with the planner settings of a lane connection; after any error the connection must be closed, since locks may be held
-- that nobody knows of.
--
-- Arguments
-- - p_rooms: how many lanes may be taken on each route.
-- - p_scan_starts, p_scan_start_ids: the scan of each route starts behind that entry (due_at, id). Entries that an
--   earlier scan passed, of held lanes and dead ones, are not read again; an instant long ago scans from the start.
-- - p_held: all lanes that the worker holds, ascending. They are left out before their locks are tried: session locks are
--   re-entrant.
-- - p_released: lanes that the connection let go, once for each time that it locked them; p_finished: its claims of which
--   nothing is held any more. These locks and rows go first, here and not in a transaction of their own, at whose end the
--   server would walk all locks of the session.
--
-- Returns one row of arrays
-- - For each entry taken, in scan order: lane_ids to days (the first day of the lane's events, where the entry knows it).
--   routes and priorities have one element where it is the same for all.
-- - For each lane, in any order: known (its id) to progress_ctids.
-- - For the lanes whose head has failed or waited, that are parked, have requeued dead letters or wait for acknowledgements: past_ords (their ords
--   in known) to ack_waits_ms. Lanes that wait for acknowledgements are among them.
-- - For each route, in the order given: the next scan start, and, if nothing was taken, the time until the next entry is
--   due. A scan that reached its limit is continued where it ended. After one that saw all that was due, the next starts
--   at the first entry that is there, whoever holds its lane, so what a dying holder leaves is seen at once. Both stay
--   50 ms behind the clock, because an entry is visible only from its commit on. What appears behind a scan start all the
--   same is found by the backstop scan (first_ready_entries).
-- - A lane with two entries in one scan is locked twice and listed twice: the caller goes by the first and unlocks it once
--   for the other.
--
-- Steps
-- 1. Every route gets its share of p_limit, then routes with more to do get the rest. OFFSET 0 keeps the lock function
--    above the scan whatever the plan below is, and LIMIT stops the scan: no lock is taken that is not returned. Entries
--    are not row-locked, which would be a write for each.
-- 2. In new statements, whose snapshots are taken after the locks: a settlement may have replaced an entry between the scan
--    and the lock, and such a lane is given back. All entries are counted in one scan of their ctids. No ctid can have been
--    reused: this call's own snapshot keeps what the first scan saw. Progress is read at the ctids that the entries carry;
--    a row there that is the lane's is its newest, because a lane has one row that is not dead. A sum over hashes of lane
--    ids tells whether these are the rows of the lanes that were taken. Where anything differs, the lanes are looked up
--    by key one by one.
--
-- Bound (I9): rows read depend on p_limit and on what is due behind the scan starts; not on backlog, blocked lanes, future
-- entries or history.
-- Index: ready's primary key; progress by ctid, and by its primary key where the row has moved.
CREATE OR REPLACE FUNCTION lanekeeper.claim(
    IN p_connection_id bigint, IN p_claim_id bigint,
    IN p_routes int[], IN p_rooms int[], IN p_scan_starts timestamptz[], IN p_scan_start_ids bigint[], IN p_limit int,
    IN p_held bigint[], IN p_released bigint[], IN p_finished bigint[],
    OUT lane_ids bigint[], OUT routes int[], OUT priorities smallint[], OUT ready_ctids tid[], OUT ready_ids bigint[],
    OUT session_ids bigint[], OUT sessions text[], OUT days date[],
    OUT known bigint[], OUT versions bigint[], OUT cursors bigint[], OUT cursor_days date[], OUT progress_ctids tid[],
    OUT scan_starts timestamptz[], OUT scan_start_ids bigint[], OUT due_in_ms bigint[],
    OUT past_ords int[], OUT attempts int[], OUT crashes int[], OUT waits_ms bigint[], OUT parked boolean[],
    OUT requeued_after bigint[], OUT sents bigint[], OUT ack_due_at timestamptz[], OUT ack_waits_ms bigint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now         timestamptz := clock_timestamp();
    -- An entry is due from its append on and visible from the commit on: scan starts stay a little behind, so that
    -- the next scan sees it.
    v_recent      timestamptz := v_now - interval '50 ms';
    v_levels      smallint[];
    v_priority    smallint;
    v_share       int := greatest(1, p_limit / greatest(1, cardinality(p_routes)));
    v_room        int;
    v_full        boolean;
    v_first_at    timestamptz;
    v_first_id    bigint;
    -- How far a scan came.
    v_end_at      timestamptz;
    v_last_at     timestamptz;
    v_end_id      bigint;
    v_rooms       int[] := p_rooms;
    v_held        bigint[] := p_held;
    -- Lanes were taken that v_held lacks.
    v_more        boolean := false;
    -- What one scan took.
    v_count       int;
    v_lane_ids    bigint[];
    v_session_ids bigint[];
    v_sessions    text[];
    v_ready_ctids tid[];
    v_ready_ids   bigint[];
    v_ready_days  date[];
    v_sum         numeric;
    -- The ctids of progress that the entries carry.
    v_progress    tid[];
    v_all         tid[];
    -- A hash sum over the lanes that were taken, and over those whose progress was read.
    v_taken       numeric := 0;
    v_seen        numeric;
    -- How many entries are still there; where not all, their ids, ascending.
    v_left        bigint;
    v_there       bigint[];
    -- Ords in lane_ids, where some lanes are given back.
    v_kept        int[];
    v_scans       int := 0;
    -- How many lanes have past_ords.
    v_pasts       bigint;
    v_crashes     int[];
BEGIN
    IF cardinality(p_released) > 0 THEN
        PERFORM pg_advisory_unlock(lanekeeper.lane_lock(u.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) FROM unnest(p_released) AS u (lane_id);
    END IF;
    IF cardinality(p_finished) > 0 THEN
        DELETE FROM lanekeeper.claim WHERE ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM unnest(p_finished) AS f (claim_id)
            CROSS JOIN LATERAL (
                SELECT c.ctid FROM lanekeeper.claim AS c
                WHERE c.connection_id = p_connection_id AND c.claim_id = f.claim_id OFFSET 0
            ) AS c
        ));
    END IF;

    lane_ids := '{}';
    scan_starts := array_fill('infinity'::timestamptz, ARRAY[cardinality(p_routes)]);
    scan_start_ids := p_scan_start_ids;
    SELECT array_agg(l.priority ORDER BY l.priority DESC) INTO v_levels FROM lanekeeper.priority_level AS l;

    -- First every route gets its share, then routes with more to do.
    FOR pass IN 1 .. 2 LOOP
        v_full := false;
        FOREACH v_priority IN ARRAY v_levels LOOP
            FOR i IN 1 .. cardinality(p_routes) LOOP
                v_room := least(v_rooms[i], p_limit - cardinality(lane_ids));
                IF pass = 1 AND v_room > v_share THEN
                    v_room := v_share;
                END IF;
                v_count := 0;
                v_end_at := p_scan_starts[i];
                v_end_id := p_scan_start_ids[i];
                IF v_room > 0 THEN
                    SELECT r.due_at, r.id - 1 INTO v_first_at, v_first_id
                    FROM lanekeeper.ready AS r
                    WHERE r.route = p_routes[i] AND r.priority = v_priority
                      AND (r.due_at, r.id) > (p_scan_starts[i], p_scan_start_ids[i]) AND r.due_at <= v_now
                    ORDER BY r.due_at, r.id LIMIT 1;
                    IF FOUND THEN
                        IF v_more THEN
                            SELECT array_agg(h.lane_id ORDER BY h.lane_id) INTO v_held
                            FROM (SELECT unnest(p_held) UNION SELECT unnest(lane_ids)) AS h (lane_id);
                            v_more := false;
                        END IF;

                        -- The array in which each entry is looked up is a column: a variable would be copied each time.
                        WITH held AS MATERIALIZED (SELECT v_held AS lanes)
                        SELECT count(*), array_agg(t.lane_id), array_agg(t.session_id), array_agg(t.session),
                               array_agg(t.ready_ctid), array_agg(t.id), array_agg(t.day), array_agg(t.progress_ctid),
                               max(t.due_at), sum(hashint8extended(t.lane_id, 0))
                        INTO v_count, v_lane_ids, v_session_ids, v_sessions, v_ready_ctids, v_ready_ids, v_ready_days, v_progress,
                             v_last_at, v_sum
                        FROM (
                            SELECT w.lane_id, w.session_id, w.session, w.ready_ctid, w.id, w.due_at, w.day, w.progress_ctid
                            FROM held AS h
                            CROSS JOIN LATERAL (
                                SELECT r.lane_id, r.session_id, r.session, r.ctid AS ready_ctid, r.id, r.due_at, r.day, r.progress_ctid
                                FROM lanekeeper.ready AS r
                                WHERE r.route = p_routes[i] AND r.priority = v_priority
                                  AND (r.due_at, r.id) > (v_first_at, v_first_id) AND r.due_at <= v_now
                                  AND h.lanes[width_bucket(r.lane_id, h.lanes)] IS DISTINCT FROM r.lane_id
                                ORDER BY r.due_at, r.id
                                OFFSET 0
                            ) AS w
                            WHERE pg_try_advisory_lock(lanekeeper.lane_lock(w.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))
                            LIMIT v_room
                        ) AS t;
                    END IF;
                    IF v_count = v_room THEN
                        v_end_at := v_last_at;
                        v_end_id := v_ready_ids[v_count];
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
                -- The least of all priorities. The second pass only takes more.
                IF pass = 1 AND (v_end_at, v_end_id) < (scan_starts[i], scan_start_ids[i]) THEN
                    scan_starts[i] := greatest(v_end_at, p_scan_starts[i]);
                    scan_start_ids[i] := v_end_id;
                END IF;
                CONTINUE WHEN v_count = 0;
                lane_ids := lane_ids || v_lane_ids;
                session_ids := session_ids || v_session_ids;
                sessions := sessions || v_sessions;
                ready_ctids := ready_ctids || v_ready_ctids;
                ready_ids := ready_ids || v_ready_ids;
                days := days || v_ready_days;
                v_all := v_all || v_progress;
                v_taken := v_taken + v_sum;
                routes := routes || array_fill(p_routes[i], ARRAY[v_count]);
                priorities := priorities || array_fill(v_priority, ARRAY[v_count]);
                v_scans := v_scans + 1;
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

    -- Are all entries still there? In one scan of their ctids: no other entry can have one of them yet, since the
    -- caller's snapshot is older than the scan's and keeps what the scan saw from being vacuumed. From here on each
    -- statement's snapshot is taken after the locks: in READ COMMITTED, which lane connections are in.
    SELECT count(*) INTO v_left FROM lanekeeper.ready AS r WHERE r.ctid = ANY (ready_ctids);

    -- The progress of most lanes is where it was when their entries were made. It comes in the order of its ctids, and so
    -- with its lane's id. A sum over hashes of the ids tells whether it is that of these lanes and of no others; the
    -- caller, which goes by the ids, gives back any lane without progress here.
    SELECT array_agg(p.lane_id), array_agg(p.version + p.step), array_agg(p.cursor), array_agg(p.cursor_day),
           array_agg(p.ctid), count(*), sum(hashint8extended(p.lane_id, 0)),
           count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                  OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL OR p.sent IS NOT NULL)
    INTO known, versions, cursors, cursor_days, progress_ctids, v_count, v_seen, v_pasts
    FROM lanekeeper.progress AS p WHERE p.ctid = ANY (v_all);

    IF v_left <> cardinality(lane_ids) OR v_count <> cardinality(lane_ids) OR v_seen <> v_taken THEN
        -- Some entry is gone, some progress has moved, or a lane is there twice. What was found, in the order of the
        -- entries.
        SELECT array_agg(r.id ORDER BY r.id) INTO v_there FROM lanekeeper.ready AS r WHERE r.ctid = ANY (ready_ctids);
        SELECT array_agg(u.lane_id ORDER BY u.lane_id), array_agg(u.version ORDER BY u.lane_id),
               array_agg(u.cursor ORDER BY u.lane_id), array_agg(u.cursor_day ORDER BY u.lane_id),
               array_agg(u.progress_ctid ORDER BY u.lane_id)
        INTO known, versions, cursors, cursor_days, progress_ctids
        FROM unnest(known, versions, cursors, cursor_days, progress_ctids)
             AS u (lane_id, version, cursor, cursor_day, progress_ctid);
        WITH found AS MATERIALIZED (SELECT known AS lanes, v_there AS there)
        SELECT array_agg(i), array_agg(versions[l.at]), array_agg(cursors[l.at]), array_agg(cursor_days[l.at]),
               array_agg(progress_ctids[l.at])
        INTO v_kept, versions, cursors, cursor_days, progress_ctids
        FROM found AS f
        CROSS JOIN generate_series(1, cardinality(lane_ids)) AS i
        CROSS JOIN LATERAL (SELECT width_bucket(lane_ids[i], f.lanes) AS at OFFSET 0) AS l
        WHERE f.lanes[l.at] = lane_ids[i] AND f.there[width_bucket(ready_ids[i], f.there)] = ready_ids[i];

        -- The others are looked up, each with its entry. An entry may have been replaced since the scan, and may outlive
        -- its lane, where a session became dormant.
        IF cardinality(v_kept) IS DISTINCT FROM cardinality(lane_ids) THEN
            SELECT v_kept || array_agg(o.i), versions || array_agg(p.version + p.step), cursors || array_agg(p.cursor),
                   cursor_days || array_agg(p.cursor_day), progress_ctids || array_agg(p.progress_ctid),
                   v_pasts + count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                                    OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL OR p.sent IS NOT NULL)
            INTO v_kept, versions, cursors, cursor_days, progress_ctids, v_pasts
            FROM (SELECT generate_series(1, cardinality(lane_ids)) EXCEPT SELECT unnest(v_kept)) AS o (i)
            JOIN lanekeeper.ready AS r ON r.ctid = ready_ctids[o.i] AND r.id = ready_ids[o.i]
            CROSS JOIN LATERAL (
                SELECT p.version, p.step, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at,
                       p.requeued_after, p.sent, p.ctid AS progress_ctid
                FROM lanekeeper.progress AS p WHERE p.lane_id = lane_ids[o.i]
                ORDER BY p.version DESC LIMIT 1
            ) AS p;
        END IF;
        IF cardinality(v_kept) IS DISTINCT FROM cardinality(lane_ids) THEN
            WITH gone AS MATERIALIZED (
                SELECT generate_series(1, cardinality(lane_ids)) AS i EXCEPT SELECT unnest(v_kept)
            ), orphan AS (
                DELETE FROM lanekeeper.ready AS r USING gone AS g
                WHERE r.ctid = ready_ctids[g.i] AND r.id = ready_ids[g.i]
            )
            SELECT array_agg(pg_advisory_unlock(lanekeeper.lane_lock(lane_ids[g.i], (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))) IS NULL INTO v_full FROM gone AS g;
        END IF;
        SELECT coalesce(array_agg(lane_ids[i]), '{}'), array_agg(session_ids[i]), array_agg(sessions[i]),
               array_agg(ready_ctids[i]), array_agg(ready_ids[i]), array_agg(days[i]), array_agg(routes[i]),
               array_agg(priorities[i])
        INTO lane_ids, session_ids, sessions, ready_ctids, ready_ids, days, routes, priorities
        FROM unnest(v_kept) AS i;
        known := lane_ids;
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

    v_crashes := array_fill(0, ARRAY[cardinality(known)]);
    IF v_pasts > 0 THEN
        -- The lanes are ours: what the statement before saw of them has not changed.
        SELECT array_agg(i), array_agg(p.attempts), array_agg(p.crashes),
               array_agg(CASE WHEN p.retry_at > v_now THEN ceil(extract(epoch FROM p.retry_at - v_now) * 1000)::bigint END),
               array_agg(p.parked_at IS NOT NULL), array_agg(p.requeued_after), array_agg(p.sent), array_agg(p.ack_due_at),
               array_agg(CASE WHEN p.ack_due_at > v_now
                              THEN ceil(extract(epoch FROM p.ack_due_at - v_now) * 1000)::bigint END)
        INTO past_ords, attempts, crashes, waits_ms, parked, requeued_after, sents, ack_due_at, ack_waits_ms
        FROM generate_series(1, cardinality(known)) AS i
        CROSS JOIN LATERAL (
            SELECT p.attempts, p.crashes, p.retry_at, p.parked_at, p.requeued_after, p.sent, p.ack_due_at
            FROM lanekeeper.progress AS p WHERE p.lane_id = known[i] AND p.version <= versions[i]
            ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
              OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL OR p.sent IS NOT NULL;
        -- None where only lanes that were given back had any.
        FOR i IN 1 .. coalesce(cardinality(past_ords), 0) LOOP
            v_crashes[past_ords[i]] := CASE WHEN crashes[i] < 2 THEN crashes[i] END;
        END LOOP;
    END IF;
    INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
    VALUES (p_connection_id, p_claim_id, known, versions, v_crashes);
    IF v_scans = 1 THEN
        routes := routes[1:1];
        priorities := priorities[1:1];
    END IF;
END
$$;
