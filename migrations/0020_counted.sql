-- A claim asks whether its tokens are still there without going by their ids: they need neither be sorted nor be
-- looked up in each other: 0.3 of the 3.5 us that a claim costs for each lane.
--
-- A settled dead letter finds its lane's progress without walking the dead versions that a held snapshot keeps.
--
-- Figures: docs/performance.md.

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
-- was tried. So each is looked for once more when its lane is ours and nobody else can touch it.
-- Index: ready's primary key; progress by its place, and by its key where it is no longer there.
CREATE OR REPLACE FUNCTION lanekeeper.claim_lanes(
    IN p_connection_id bigint, IN p_claim_id bigint,
    IN p_routes int[], IN p_rooms int[], IN p_bounds timestamptz[], IN p_bound_ids bigint[], IN p_limit int,
    IN p_held bigint[],
    OUT lane_ids bigint[], OUT routes int[], OUT priorities smallint[], OUT tokens tid[], OUT token_ids bigint[],
    OUT session_ids bigint[], OUT sessions text[], OUT versions bigint[], OUT cursors bigint[], OUT cursor_days date[],
    OUT bounds timestamptz[], OUT bound_ids bigint[], OUT due_in_ms bigint[],
    OUT places int[], OUT attempts int[], OUT crashes int[], OUT waits_ms bigint[], OUT parked boolean[],
    OUT requeued_after bigint[], OUT progress_places tid[]
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
    v_progress    tid[];
    v_places      tid[];
    -- How many tokens are still there; where not all, their ids, ascending.
    v_left        bigint;
    v_there       bigint[];
    v_found       int[];
    v_walks       int := 0;
    -- What the tokens say of the days of their lanes' events.
    v_days        date[];
    -- Of how many lanes more is to be said.
    v_pasts       bigint;
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
                               array_agg(t.token), array_agg(t.id), array_agg(t.day), array_agg(t.progress_place),
                               max(t.due_at)
                        INTO v_count, v_lane_ids, v_session_ids, v_sessions, v_tokens, v_token_ids, v_token_days, v_progress,
                             v_last_at
                        FROM (
                            SELECT w.lane_id, w.session_id, w.session, w.token, w.id, w.due_at, w.day, w.progress_place
                            FROM (
                                SELECT r.lane_id, r.session_id, r.session, r.ctid AS token, r.id, r.due_at, r.day, r.progress_place
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
                v_days := v_days || v_token_days;
                progress_places := progress_places || v_progress;
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

    -- The progress of most lanes is where it was when their tokens were made. No other plan is left than one look at each
    -- place, in the order of the lanes.
    SELECT array_agg(i), array_agg(p.version + p.step), array_agg(p.cursor), array_agg(greatest(p.cursor_day, v_days[i])),
           array_agg(progress_places[i]),
           count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                  OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL)
    INTO v_found, versions, cursors, cursor_days, v_places, v_pasts
    FROM generate_series(1, cardinality(lane_ids)) AS i
    CROSS JOIN LATERAL (
        SELECT p.version, p.step, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at,
               p.requeued_after
        FROM lanekeeper.progress AS p WHERE p.ctid = progress_places[i] AND p.lane_id + 0 = lane_ids[i] OFFSET 0
    ) AS p;

    IF v_left <> cardinality(lane_ids) THEN
        SELECT array_agg(r.id ORDER BY r.id) INTO v_there FROM lanekeeper.ready AS r WHERE r.ctid = ANY (tokens);
        SELECT array_agg(v_found[n]), array_agg(versions[n]), array_agg(cursors[n]), array_agg(cursor_days[n]),
               array_agg(v_places[n])
        INTO v_found, versions, cursors, cursor_days, v_places
        FROM generate_series(1, cardinality(v_found)) AS n
        WHERE token_ids[v_found[n]] = v_there[width_bucket(token_ids[v_found[n]], v_there)];
    END IF;
    -- The others are looked up, each with its token. A token may have been replaced since the walk, and may outlive its
    -- lane, where a session was removed.
    IF cardinality(v_found) IS DISTINCT FROM cardinality(lane_ids) THEN
        SELECT v_found || array_agg(o.i), versions || array_agg(p.version + p.step), cursors || array_agg(p.cursor),
               cursor_days || array_agg(greatest(p.cursor_day, v_days[o.i])), v_places || array_agg(p.place),
               v_pasts + count(*) FILTER (WHERE p.attempts > 0 OR p.crashes > 0 OR p.retry_at IS NOT NULL
                                                OR p.parked_at IS NOT NULL OR p.requeued_after IS NOT NULL)
        INTO v_found, versions, cursors, cursor_days, v_places, v_pasts
        FROM (SELECT generate_series(1, cardinality(lane_ids)) EXCEPT SELECT unnest(v_found)) AS o (i)
        JOIN lanekeeper.ready AS r ON r.ctid = tokens[o.i] AND r.id = token_ids[o.i]
        CROSS JOIN LATERAL (
            SELECT p.version, p.step, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at,
                   p.requeued_after, p.ctid AS place
            FROM lanekeeper.progress AS p WHERE p.lane_id = lane_ids[o.i]
            ORDER BY p.version DESC LIMIT 1
        ) AS p;
        IF cardinality(v_found) IS DISTINCT FROM cardinality(lane_ids) THEN
            WITH gone AS MATERIALIZED (
                SELECT generate_series(1, cardinality(lane_ids)) AS i EXCEPT SELECT unnest(v_found)
            ), orphan AS (
                DELETE FROM lanekeeper.ready AS r USING gone AS g
                WHERE r.ctid = tokens[g.i] AND r.id = token_ids[g.i]
            )
            SELECT array_agg(pg_advisory_unlock(lanekeeper.lane_lock(lane_ids[g.i]))) IS NULL INTO v_full FROM gone AS g;
        END IF;
        SELECT coalesce(array_agg(lane_ids[i]), '{}'), array_agg(session_ids[i]), array_agg(sessions[i]),
               array_agg(tokens[i]), array_agg(token_ids[i]), array_agg(routes[i]), array_agg(priorities[i])
        INTO lane_ids, session_ids, sessions, tokens, token_ids, routes, priorities
        FROM unnest(v_found) AS i;
        IF cardinality(lane_ids) = 0 THEN
            RETURN;
        END IF;
    END IF;
    progress_places := v_places;

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
    IF v_pasts > 0 THEN
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
        -- None where only lanes had a past that were given back.
        FOR i IN 1 .. coalesce(cardinality(places), 0) LOOP
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

-- What came of requeued dead letters, in a settlement that hit: redelivered, their destination has accepted
-- them, and the events count as delivered; dead_lettered_again, they were exhausted once more and wait for an
-- operator. p_ords are places in p_lanes and p_hit.
CREATE OR REPLACE FUNCTION lanekeeper.settle_letters(
    p_lanes bigint[], p_versions bigint[], p_hit boolean[], p_ords int[], p_kinds text[], p_dead_ids bigint[],
    p_errors text[], p_attempts int[], p_crashes int[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_lane_id bigint;
    v_seq     bigint;
BEGIN
    FOR i IN 1 .. cardinality(p_ords) LOOP
        CONTINUE WHEN NOT p_hit[p_ords[i]] OR p_kinds[i] NOT IN ('redelivered', 'dead_lettered_again');
        v_lane_id := p_lanes[p_ords[i]];
        IF p_kinds[i] = 'redelivered' THEN
            UPDATE lanekeeper.dead AS d
            SET resolution = 'requeued', resolved_at = clock_timestamp(), requeued_at = NULL, after_seq = NULL
            WHERE d.dead_id = p_dead_ids[i] RETURNING d.seq INTO v_seq;
            DELETE FROM lanekeeper.outcome AS o
            WHERE o.lane_id = v_lane_id AND o.seq = v_seq AND o.kind = 'dead_lettered';
        ELSE
            UPDATE lanekeeper.dead AS d
            SET requeued_at = NULL, after_seq = NULL, died_at = clock_timestamp(), error = p_errors[i],
                attempts = p_attempts[i], crashes = p_crashes[i]
            WHERE d.dead_id = p_dead_ids[i] RETURNING d.seq INTO v_seq;
            UPDATE lanekeeper.outcome AS o SET error = p_errors[i]
            WHERE o.lane_id = v_lane_id AND o.seq = v_seq AND o.kind = 'dead_lettered';
        END IF;
        UPDATE lanekeeper.progress AS p
        SET requeued_after = (SELECT n.after_seq FROM lanekeeper.next_letter(v_lane_id) AS n)
        -- The versions that it can be keep the look-up from older, dead ones.
        WHERE p.lane_id = v_lane_id AND p.version + p.step = p_versions[p_ords[i]] + 1
          AND p.version BETWEEN p_versions[p_ords[i]] - 14 AND p_versions[p_ords[i]] + 1;
    END LOOP;
END
$$;
