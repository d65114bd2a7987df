-- One turn of the work that changes of subscriptions leave behind (I13). Returns how many changes are unfinished, and
-- whether there is more to do at once.
--
-- An `apply` gives a ready entry to every lane that it sees, and lanes to every session. It cannot see what open
-- transactions have written by the state before: a new session, or lanes in it. So it leaves a row in stream_change, and
-- the stream's sessions are scanned again when the last such transaction is over:
--
--   snapshots ── nobody has a snapshot from before ──► transactions ── numbers below the barrier are over ──► last
--   (scans in between, ever less often)                                    the scan that ends the change: the row goes
--
-- - A transaction takes its number with its first write and may have read before that. So numbers alone are no barrier:
--   first every backend_xmin must have passed the apply's number. Whoever wrote by an older snapshot has a number by then;
--   the barrier is drawn anew, and everything below it must be over, prepared transactions included.
-- - A scan goes over the sessions by id, p_sessions in a turn. It adds missing lanes, and inserts a ready entry for each
--   lane with something to deliver; a spare one is harmless. A session whose append lock is taken is passed over and
--   scanned once more.
-- - A forgotten prepared transaction, or a dump, may hold up a barrier for ever. So there are scans before the last one:
--   after a second, and whenever the change is twice as old, up to one an hour.
--
-- Changes that need none of this: pausing, since entries are inserted all the while; parking, since the session's append
-- lock orders it; what is critical, which is judged at delivery.
-- One process at a time; it waits for nobody and holds locks for one turn only.
-- Index: session's primary key, lane's unique (session_id, subscription_id), progress' and event's primary keys.
-- Rows: p_sessions sessions; of each of their lanes at most filter_look_back() events.
CREATE OR REPLACE FUNCTION lanekeeper.finish_changes(
    IN p_sessions int,
    OUT unfinished bigint, OUT more boolean,
    OUT sessions_scanned bigint, OUT lanes_woken bigint
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
    unfinished := 0; more := false; sessions_scanned := 0; lanes_woken := 0;
    IF NOT EXISTS (SELECT FROM lanekeeper.stream_change) THEN
        RETURN;
    END IF;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(3)) THEN
        SELECT count(*) INTO unfinished FROM lanekeeper.stream_change;
        RETURN;
    END IF;

    SELECT array_agg(c.barrier) INTO v_over FROM lanekeeper.stream_change AS c
    WHERE c.stage = 'transactions' AND lanekeeper.over_before(c.barrier);
    -- Before anything is written: a transaction that wrote by an old snapshot had its number by then, and this
    -- transaction's own, which is the next barrier, must be later.
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        SELECT array_agg(c.barrier) INTO v_seen FROM lanekeeper.stream_change AS c
        WHERE c.stage = 'snapshots' AND lanekeeper.seen_by_every_snapshot(c.barrier);
    END IF;
    UPDATE lanekeeper.stream_change AS c SET stage = 'last', scanned_to = 0, passed_over = false
    WHERE c.barrier = ANY (v_over);
    UPDATE lanekeeper.stream_change AS c SET stage = 'transactions', barrier = pg_current_xact_id()
    WHERE c.barrier = ANY (v_seen);
    UPDATE lanekeeper.stream_change AS c SET scanned_to = 0, passed_over = false
    WHERE c.scanned_to IS NULL AND c.scan_at <= clock_timestamp();

    SELECT c.stream_id, c.xact, c.stage, c.scanned_to, c.passed_over INTO v_change
    FROM lanekeeper.stream_change AS c WHERE c.scanned_to IS NOT NULL
    ORDER BY c.stage = 'last' DESC, c.xact LIMIT 1;
    IF FOUND THEN
        SELECT array_agg(b.session_id) FILTER (WHERE b.stream_id = v_change.stream_id),
               max(b.session_id), count(*)
        INTO v_ids, v_last, sessions_scanned
        FROM (
            SELECT s.session_id, s.stream_id FROM lanekeeper.session AS s
            WHERE s.session_id > v_change.scanned_to
            ORDER BY s.session_id LIMIT p_sessions
        ) AS b;
        IF v_ids IS NOT NULL THEN
            SELECT a.added, a.passed_over INTO v_done
            FROM lanekeeper.add_missing_lanes(v_change.stream_id, NULL, v_ids) AS a;
            v_change.passed_over := v_change.passed_over OR v_done.passed_over > 0;
            -- A lane that waits for a retry has its entry; so has a lane with a long run of filtered events, once
            -- that is longer than an append looks back.
            INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
            SELECT lanekeeper.entry_route(l.lane_id, l.route), 0, clock_timestamp(), l.lane_id
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

        IF sessions_scanned = p_sessions THEN
            UPDATE lanekeeper.stream_change AS c SET scanned_to = v_last, passed_over = v_change.passed_over
            WHERE c.stream_id = v_change.stream_id AND c.xact = v_change.xact;
        ELSIF v_change.stage = 'last' AND NOT v_change.passed_over THEN
            DELETE FROM lanekeeper.stream_change AS c
            WHERE c.stream_id = v_change.stream_id AND c.xact = v_change.xact;
        ELSE
            -- As long again as the change is old: a barrier that never falls costs a scan an hour.
            UPDATE lanekeeper.stream_change AS c
            SET scanned_to = NULL, passed_over = v_change.passed_over,
                scan_at = clock_timestamp()
                    + greatest(interval '1 s', least(clock_timestamp() - c.changed_at, interval '1 hour'))
            WHERE c.stream_id = v_change.stream_id AND c.xact = v_change.xact;
        END IF;
    END IF;
    SELECT count(*), coalesce(bool_or(c.scanned_to IS NOT NULL), false) INTO unfinished, more
    FROM lanekeeper.stream_change AS c;
END
$$;
