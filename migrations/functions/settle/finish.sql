-- Settles lanes that this connection holds, all of which finish with nothing to record about their heads: the cursor
-- moves, and where nothing is left the lane goes idle. The same as operation 2 of settle(), with the same guarantees (I5,
-- I13) and in fewer steps: a tenth less of the server's part of a lane with one event. Nearly all groups are of this kind.
--
-- The lanes are in the order of their ready entries' ids; p_days has one element where it is the same for all; p_progress_ctids
-- has the ctid of each lane's progress at its claim. Returns the ords in p_lanes of the lanes that did not go idle, and
-- the result of each: 3 more, 4 busy, as in settle(); 0, another holder settled it and nothing was written.
-- Lanes whose progress is not at its ctid, or that begin before the recent partitions, are left to settle().
-- Index: progress and ready by ctid; event's primary key in the recent partitions. Rows: those of the lanes given.
-- A change here is a change of settle() too.
CREATE OR REPLACE FUNCTION lanekeeper.finish(
    p_worker_id bigint,
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_cursors bigint[], p_days date[], p_progress_ctids tid[],
    p_ready_ctids tid[], p_ready_ids bigint[],
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
    -- For lanes that begin before it the recent partitions are not enough.
    v_since     date;
    -- Those that were written, and those of them that have newer events.
    v_written   int[];
    v_more      int[];
    -- The others: they begin before that, or their progress was not at its ctid.
    v_missed    int[];
    v_idle      int[];
    v_ready_ctids    tid[] := p_ready_ctids;
    v_ready_ids bigint[] := p_ready_ids;
BEGIN
    -- Shared with the other holders of the session's lanes, exclusive against its producers.
    SELECT bool_and(pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))),
           (SELECT r.since FROM lanekeeper.recent_since AS r)
    INTO v_all, v_since
    FROM unnest(p_sessions) AS s (session_id);
    IF NOT v_all THEN
        SELECT array_agg(pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))) INTO v_locked
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
        -- Found by ctid alone: no plan may read more of the table than that.
        WHERE p.ctid = p_progress_ctids[i] AND p.lane_id + 0 = p_lanes[i] AND p.version + p.step = p_versions[i]
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
                   array_agg(coalesce(v_day, p_days[i])) AS days, array_agg(p_ready_ctids[i]) AS ready_ctids,
                   array_agg(p_ready_ids[i]) AS ready_ids, array_agg(p_progress_ctids[i]) AS progress_ctids
            FROM unnest(v_missed) AS i
        ) AS a
        CROSS JOIN LATERAL lanekeeper.settle(
            p_worker_id, a.lanes, a.sessions, a.versions, a.operations, a.changed, a.cursors, a.days, '{}', '{}', '{}', '{}', '{}',
            '{}', a.ready_ctids, a.ready_ids, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', a.progress_ctids) AS s;
        SELECT array_agg(v_missed[r.n]), array_agg(r.result) INTO ords, results
        FROM (
            SELECT s.n, s.result FROM unnest(ords, results) AS s (n, result) WHERE s.result <> 2
            UNION ALL
            SELECT l.n, 0::smallint
            FROM (SELECT generate_series(1, cardinality(v_missed)) EXCEPT SELECT unnest(ords)) AS l (n)
        ) AS r;
    END IF;

    -- `more` even without the lock: what is committed need not wait for the append that has it.
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
        SELECT array_agg(p_ready_ctids[i] ORDER BY p_ready_ids[i]), array_agg(p_ready_ids[i] ORDER BY p_ready_ids[i])
        INTO v_ready_ctids, v_ready_ids
        FROM unnest(v_idle) AS i;
    END IF;

    -- In one scan: a row at one of these ctids goes if it has one of these ids, whichever. The ids are a column: a
    -- variable would be copied for each entry.
    WITH t AS MATERIALIZED (SELECT v_ready_ids AS ids)
    DELETE FROM lanekeeper.ready AS r USING t
    WHERE r.ctid = ANY (v_ready_ctids) AND r.id = t.ids[width_bucket(r.id, t.ids)];
END
$$;
