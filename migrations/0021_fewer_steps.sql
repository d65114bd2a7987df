-- A claim and the usual settlement with fewer steps for each lane: a tenth of the server's part of a lane with one event.
--
-- A claim reads progress in one scan of its places, whose rows say of which lane they are, instead of one look for each
-- lane; it gives back the locks of what its connection held before, which was a transaction of its own: at the end of
-- each the server walks all locks that the session holds. Where a whole array is passed for each row, to be looked into, it
-- is a column here: a variable of plpgsql is copied each time. Workers of the last release go on with claim_lanes and
-- settle.
--
-- Figures: docs/performance.md.

-- What workers of before 0014 called. Those of the last release call claim_lanes, and go on with it.
DROP FUNCTION lanekeeper.claim(bigint, bigint, int[], int[], timestamptz[], bigint[], int, bigint[]);

-- Walks the due tokens of the given routes, highest priority first, and takes the lane locks of up
-- to p_limit lanes. Writes nothing but the claim's own row: the tokens stay, so that a crash at
-- any point leaves them there.
--
-- p_bounds, p_bound_ids: the walk of a route starts behind that token. What an earlier walk passed need
-- not be walked again, deleted tokens and those of held lanes above all. An instant long ago walks all.
-- p_held: lanes that the worker holds already, in ascending order (session locks are
-- re-entrant, and every held lane's token may be walked: they are looked up by bisection).
-- p_released: lanes that the connection let go, once for each time that it locked them; p_finished: its claims of which
-- nothing is held any more. Their locks are given back and they are forgotten before anything is walked.
-- Returns one row of arrays. For each token that was taken, in the order of the walks: lane_ids to days, the first day of the
-- lane's events by its token; routes and priorities are of length one where it is the same for all. For each lane, in
-- any order: known, its id, to progress_places; once more for each further token. For those of them whose heads have a
-- past, that are parked or have requeued dead letters: their places in known, and attempts to requeued_after. A lane that
-- has two tokens in one walk is locked twice: the caller goes by the first and unlocks it once for the other. For each
-- route, in the order given: the next bound and, if nothing was taken, the time until its next token is due. A walk that came to its limit is continued where it ended; after
-- one that saw all that was due, the next starts at the first token that is there, whoever holds its lane:
-- so what a holder that dies leaves behind is seen at once where there is little to do, and by the next
-- walk of all where there is much.
--
-- OFFSET 0 keeps the lock above the walk whatever the plan below is, and LIMIT stops the walk: no lock
-- is taken that is not returned. The tokens' rows are not locked: that would be a write for each. A
-- settlement may have replaced a token after the walk's snapshot and given the lane back before its lock
-- was tried. So each is looked for once more when its lane is ours and nobody else can touch it.
-- Index: ready's primary key; progress by its place, and by its key where it is no longer there.
CREATE FUNCTION lanekeeper.claim(
    IN p_connection_id bigint, IN p_claim_id bigint,
    IN p_routes int[], IN p_rooms int[], IN p_bounds timestamptz[], IN p_bound_ids bigint[], IN p_limit int,
    IN p_held bigint[], IN p_released bigint[], IN p_finished bigint[],
    OUT lane_ids bigint[], OUT routes int[], OUT priorities smallint[], OUT tokens tid[], OUT token_ids bigint[],
    OUT session_ids bigint[], OUT sessions text[], OUT days date[],
    OUT known bigint[], OUT versions bigint[], OUT cursors bigint[], OUT cursor_days date[], OUT progress_places tid[],
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
    v_token_days  date[];
    v_sum         numeric;
    -- Where the tokens say that progress is.
    v_progress    tid[];
    v_all         tid[];
    -- Which lanes were taken, in one number; and of which progress was known.
    v_taken       numeric := 0;
    v_seen        numeric;
    -- How many tokens are still there; where not all, their ids, ascending.
    v_left        bigint;
    v_there       bigint[];
    -- Places in lane_ids, where they are not those of the walks.
    v_kept        int[];
    v_walks       int := 0;
    -- Of how many lanes more is to be said.
    v_pasts       bigint;
    v_crashes     int[];
BEGIN
    IF cardinality(p_released) > 0 THEN
        PERFORM pg_advisory_unlock(lanekeeper.lane_lock(u.lane_id)) FROM unnest(p_released) AS u (lane_id);
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

                        -- The array that each token is looked up in as a row's: a variable's would be copied each time.
                        WITH held AS MATERIALIZED (SELECT v_held AS lanes)
                        SELECT count(*), array_agg(t.lane_id), array_agg(t.session_id), array_agg(t.session),
                               array_agg(t.token), array_agg(t.id), array_agg(t.day), array_agg(t.progress_place),
                               max(t.due_at), sum(hashint8extended(t.lane_id, 0))
                        INTO v_count, v_lane_ids, v_session_ids, v_sessions, v_tokens, v_token_ids, v_token_days, v_progress,
                             v_last_at, v_sum
                        FROM (
                            SELECT w.lane_id, w.session_id, w.session, w.token, w.id, w.due_at, w.day, w.progress_place
                            FROM held AS h
                            CROSS JOIN LATERAL (
                                SELECT r.lane_id, r.session_id, r.session, r.ctid AS token, r.id, r.due_at, r.day, r.progress_place
                                FROM lanekeeper.ready AS r
                                WHERE r.route = p_routes[i] AND r.priority = v_priority
                                  AND (r.due_at, r.id) > (v_first_at, v_first_id) AND r.due_at <= v_now
                                  AND h.lanes[width_bucket(r.lane_id, h.lanes)] IS DISTINCT FROM r.lane_id
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
                days := days || v_token_days;
                v_all := v_all || v_progress;
                v_taken := v_taken + v_sum;
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

    -- Are all tokens still there? In one scan of their places: no other token can be there yet, since the caller's
    -- snapshot is older than the walk's and keeps what the walk saw from being cleared away. From here on each
    -- statement's snapshot is taken after the locks: in READ COMMITTED, which lane connections are in.
    SELECT count(*) INTO v_left FROM lanekeeper.ready AS r WHERE r.ctid = ANY (tokens);

    -- The progress of most lanes is where it was when their tokens were made. It comes in the order of its places, and so
    -- with its lane's id. Whether it is that of all lanes and of no others tells a sum over hashes of their ids; the
    -- caller, who goes by the ids, gives back what nothing is known of.
    SELECT array_agg(p.lane_id), array_agg(p.version + p.step), array_agg(p.cursor), array_agg(p.cursor_day),
           array_agg(p.ctid), count(*), sum(hashint8extended(p.lane_id, 0)),
           count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                  OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL)
    INTO known, versions, cursors, cursor_days, progress_places, v_count, v_seen, v_pasts
    FROM lanekeeper.progress AS p WHERE p.ctid = ANY (v_all);

    IF v_left <> cardinality(lane_ids) OR v_count <> cardinality(lane_ids) OR v_seen <> v_taken THEN
        -- Some token is gone, some progress is elsewhere, or a lane is there twice. What was known, in the order of
        -- its tokens.
        SELECT array_agg(r.id ORDER BY r.id) INTO v_there FROM lanekeeper.ready AS r WHERE r.ctid = ANY (tokens);
        SELECT array_agg(u.lane_id ORDER BY u.lane_id), array_agg(u.version ORDER BY u.lane_id),
               array_agg(u.cursor ORDER BY u.lane_id), array_agg(u.cursor_day ORDER BY u.lane_id),
               array_agg(u.place ORDER BY u.lane_id)
        INTO known, versions, cursors, cursor_days, progress_places
        FROM unnest(known, versions, cursors, cursor_days, progress_places)
             AS u (lane_id, version, cursor, cursor_day, place);
        WITH found AS MATERIALIZED (SELECT known AS lanes, v_there AS tokens)
        SELECT array_agg(i), array_agg(versions[l.at]), array_agg(cursors[l.at]), array_agg(cursor_days[l.at]),
               array_agg(progress_places[l.at])
        INTO v_kept, versions, cursors, cursor_days, progress_places
        FROM found AS f
        CROSS JOIN generate_series(1, cardinality(lane_ids)) AS i
        CROSS JOIN LATERAL (SELECT width_bucket(lane_ids[i], f.lanes) AS at OFFSET 0) AS l
        WHERE f.lanes[l.at] = lane_ids[i] AND f.tokens[width_bucket(token_ids[i], f.tokens)] = token_ids[i];

        -- The others are looked up, each with its token. A token may have been replaced since the walk, and may outlive
        -- its lane, where a session was removed.
        IF cardinality(v_kept) IS DISTINCT FROM cardinality(lane_ids) THEN
            SELECT v_kept || array_agg(o.i), versions || array_agg(p.version + p.step), cursors || array_agg(p.cursor),
                   cursor_days || array_agg(p.cursor_day), progress_places || array_agg(p.place),
                   v_pasts + count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                                    OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL)
            INTO v_kept, versions, cursors, cursor_days, progress_places, v_pasts
            FROM (SELECT generate_series(1, cardinality(lane_ids)) EXCEPT SELECT unnest(v_kept)) AS o (i)
            JOIN lanekeeper.ready AS r ON r.ctid = tokens[o.i] AND r.id = token_ids[o.i]
            CROSS JOIN LATERAL (
                SELECT p.version, p.step, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at,
                       p.requeued_after, p.ctid AS place
                FROM lanekeeper.progress AS p WHERE p.lane_id = lane_ids[o.i]
                ORDER BY p.version DESC LIMIT 1
            ) AS p;
        END IF;
        IF cardinality(v_kept) IS DISTINCT FROM cardinality(lane_ids) THEN
            WITH gone AS MATERIALIZED (
                SELECT generate_series(1, cardinality(lane_ids)) AS i EXCEPT SELECT unnest(v_kept)
            ), orphan AS (
                DELETE FROM lanekeeper.ready AS r USING gone AS g
                WHERE r.ctid = tokens[g.i] AND r.id = token_ids[g.i]
            )
            SELECT array_agg(pg_advisory_unlock(lanekeeper.lane_lock(lane_ids[g.i]))) IS NULL INTO v_full FROM gone AS g;
        END IF;
        SELECT coalesce(array_agg(lane_ids[i]), '{}'), array_agg(session_ids[i]), array_agg(sessions[i]),
               array_agg(tokens[i]), array_agg(token_ids[i]), array_agg(days[i]), array_agg(routes[i]),
               array_agg(priorities[i])
        INTO lane_ids, session_ids, sessions, tokens, token_ids, days, routes, priorities
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
               array_agg(p.parked_at IS NOT NULL), array_agg(p.requeued_after)
        INTO places, attempts, crashes, waits_ms, parked, requeued_after
        FROM generate_series(1, cardinality(known)) AS i
        CROSS JOIN LATERAL (
            SELECT p.attempts, p.crashes, p.retry_at, p.parked_at, p.requeued_after
            FROM lanekeeper.progress AS p WHERE p.lane_id = known[i] AND p.version <= versions[i]
            ORDER BY p.version DESC LIMIT 1
        ) AS p
        WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
              OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL;
        -- None where only lanes had a past that were given back.
        FOR i IN 1 .. coalesce(cardinality(places), 0) LOOP
            v_crashes[places[i]] := CASE WHEN crashes[i] < 2 THEN crashes[i] END;
        END LOOP;
    END IF;
    INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
    VALUES (p_connection_id, p_claim_id, known, versions, v_crashes);
    IF v_walks = 1 THEN
        routes := routes[1:1];
        priorities := priorities[1:1];
    END IF;
END
$$;

-- Settles lanes that this connection holds, all of which finish and of whose heads nothing is to be said: the cursor
-- moves, and where nothing is left the lane goes idle. What `settle` does with operation 2, in fewer steps; what it has for
-- such lanes is still needed for groups in which more is to be said of some.
-- The lanes are in the order of their tokens' ids; p_days has one element where it is the same for all; p_places is
-- where the progress of each lane was when it was claimed. Returns the places in p_lanes of those that did not go idle,
-- and what each came to: 3 more, 4 busy, as in `settle`; 0, it was settled by somebody else, and nothing was written.
--
-- Index: progress and tokens by their places; event's primary key.
CREATE FUNCTION lanekeeper.finish(
    p_worker_id bigint,
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_cursors bigint[], p_days date[], p_places tid[],
    p_tokens tid[], p_token_ids bigint[],
    OUT ords int[], OUT results smallint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now       timestamptz := clock_timestamp();
    v_lanes     int := cardinality(p_lanes);
    -- NULL where it is not the same for all.
    v_day       date := CASE WHEN cardinality(p_days) = 1 THEN p_days[1] END;
    -- The append locks of all, or else of which.
    v_all       boolean;
    v_locked    boolean[];
    -- Of lanes that begin before it the recent part of the log does not tell all.
    v_since     date;
    -- Those that were written, and of these those of which there is more.
    v_written   int[];
    v_more      int[];
    -- The others: they begin before that, or their progress was not found at its place.
    v_missed    int[];
    v_idle      int[];
    v_tokens    tid[] := p_tokens;
    v_token_ids bigint[] := p_token_ids;
BEGIN
    -- Shared with the other holders of the session's lanes, exclusive against its producers.
    SELECT bool_and(pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id))),
           (SELECT r.since FROM lanekeeper.recent_since AS r)
    INTO v_all, v_since
    FROM unnest(p_sessions) AS s (session_id);
    IF NOT v_all THEN
        SELECT array_agg(pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id))) INTO v_locked
        FROM unnest(p_sessions) AS s (session_id);
    END IF;

    -- In a statement of its own: its snapshot was taken after the append locks. The compare-and-set (I5) is on
    -- version and step.
    WITH moved AS (
        UPDATE lanekeeper.progress AS p
        SET version = CASE WHEN p.step < 15 THEN p.version ELSE p.version + 16 END, step = (p.step + 1) % 16,
            cursor = p_cursors[i], cursor_day = coalesce(v_day, p_days[i]), attempts = 0, crashes = 0, retry_at = NULL,
            parked_at = NULL, last_error = NULL, changed_at = v_now
        FROM generate_series(1, v_lanes) AS i
        -- Nothing but the place to go by: no plan may read more of the table than that.
        WHERE p.ctid = p_places[i] AND p.lane_id + 0 = p_lanes[i] AND p.version + p.step = p_versions[i]
          AND coalesce(v_day, p_days[i]) >= v_since
        RETURNING i, p.requeued_after IS NOT NULL OR EXISTS (
            SELECT FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_sessions[i] AND e.seq > p_cursors[i] AND e.day >= coalesce(v_day, p_days[i])) AS more
    )
    SELECT array_agg(m.i), array_agg(m.i) FILTER (WHERE m.more) INTO v_written, v_more FROM moved AS m;

    IF cardinality(v_written) IS DISTINCT FROM v_lanes THEN
        SELECT array_agg(t.i ORDER BY t.i) INTO v_missed
        FROM (SELECT generate_series(1, v_lanes) EXCEPT SELECT unnest(v_written)) AS t (i);
        SELECT s.ords, s.results INTO ords, results
        FROM (
            SELECT array_agg(p_lanes[i]) AS lanes, array_agg(p_sessions[i]) AS sessions, array_agg(p_versions[i]) AS versions,
                   array_agg(2::smallint) AS operations, array_agg(true) AS changed, array_agg(p_cursors[i]) AS cursors,
                   array_agg(coalesce(v_day, p_days[i])) AS days, array_agg(p_tokens[i]) AS tokens,
                   array_agg(p_token_ids[i]) AS token_ids, array_agg(p_places[i]) AS places
            FROM unnest(v_missed) AS i
        ) AS a
        CROSS JOIN LATERAL lanekeeper.settle(
            p_worker_id, a.lanes, a.sessions, a.versions, a.operations, a.changed, a.cursors, a.days, '{}', '{}', '{}', '{}', '{}',
            '{}', a.tokens, a.token_ids, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', a.places) AS s;
        SELECT array_agg(v_missed[r.n]), array_agg(r.result) INTO ords, results
        FROM (
            SELECT s.n, s.result FROM unnest(ords, results) AS s (n, result) WHERE s.result <> 2
            UNION ALL
            SELECT l.n, 0::smallint
            FROM (SELECT generate_series(1, cardinality(v_missed)) EXCEPT SELECT unnest(ords)) AS l (n)
        ) AS r;
    END IF;

    -- More without the lock too: what is committed need not wait for the append that has it.
    IF NOT v_all OR v_more IS NOT NULL OR v_missed IS NOT NULL THEN
        SELECT array_agg(w.i) FILTER (WHERE w.result = 2), ords || array_agg(w.i) FILTER (WHERE w.result <> 2),
               results || array_agg(w.result) FILTER (WHERE w.result <> 2)
        INTO v_idle, ords, results
        FROM (
            SELECT i, 3::smallint AS result FROM unnest(v_more) AS i
            UNION ALL
            SELECT r.i, CASE WHEN v_all OR v_locked[r.i] THEN 2 ELSE 4 END::smallint
            FROM (SELECT unnest(v_written) EXCEPT SELECT unnest(v_more)) AS r (i)
        ) AS w;
        SELECT array_agg(p_tokens[i] ORDER BY p_token_ids[i]), array_agg(p_token_ids[i] ORDER BY p_token_ids[i])
        INTO v_tokens, v_token_ids
        FROM unnest(v_idle) AS i;
    END IF;

    -- In one scan: whatever has one of these ids goes, at whichever of these places it is. The ids as a row's: a
    -- variable would be copied for each token.
    WITH t AS MATERIALIZED (SELECT v_token_ids AS ids)
    DELETE FROM lanekeeper.ready AS r USING t
    WHERE r.ctid = ANY (v_tokens) AND r.id = t.ids[width_bucket(r.id, t.ids)];
END
$$;

REVOKE ALL ON FUNCTION lanekeeper.claim, lanekeeper.finish FROM PUBLIC;
