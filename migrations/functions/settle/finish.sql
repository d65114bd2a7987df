-- Settles lanes that this connection holds, all of which finish with nothing to record about their heads: the cursor
-- moves, and where nothing is left the lane goes idle. The same as operation 2 of settle(), with the same guarantees (I5,
-- I13) and in fewer steps: a tenth less of the server's part of a lane with one event. Nearly all groups are of this kind.
--
-- The lanes are in the order of their ready entries' ids; p_days has one element where it is the same for all; p_places
-- has the ctid of each lane's progress at its claim. Returns the ords in p_lanes of the lanes that did not go idle, and
-- the result of each: 3 more, 4 busy, as in settle(); 0, another holder settled it and nothing was written.
-- Lanes whose progress is not at its ctid, or that begin before the recent partitions, are left to settle().
-- Index: progress and ready by ctid; event's primary key in the recent partitions. Rows: those of the lanes given.
-- A change here is a change of settle() too.
CREATE OR REPLACE FUNCTION lanekeeper.finish(
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
