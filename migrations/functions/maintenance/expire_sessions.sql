-- One turn of making sessions dormant: a session of which nothing is left but its lanes loses them. Its name and last seq
-- stay for ever, since no two events may have one number (I1); an append adds the lanes again. Returns how many sessions
-- began to expire, how many became dormant, and whether there is more to do at once.
--
-- A closed session stays closed.
--
-- Two steps, told by session.lanes_version: -1, the session is expiring; -2, it is dormant. Either differs from every
-- stream's, so an append that sees it looks for missing lanes and writes the session's row. The second step waits until
-- every snapshot sees the first, takes the append lock and the lane locks, and judges again. So an append with a snapshot
-- from before the first step is waited for, one with a snapshot from between the two must write the row too and is refused
-- with 40001, and any other finds no lanes and adds them (I13).
--
-- A turn removes the lanes of up to 50 expiring sessions; where none is due, it scans the next p_sessions sessions. A round
-- over all begins once an hour at most. What is locked in this moment is left for the next round. One process at a time.
-- Index: session's, event's and progress' primary keys, lane's unique (session_id, subscription_id); the ready entries of
-- the routes concerned are read. Rows: p_sessions sessions, one event of each partition for each.
CREATE OR REPLACE FUNCTION lanekeeper.expire_sessions(
    IN p_days int, IN p_sessions int, OUT expiring bigint, OUT dormant bigint, OUT more boolean
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
    v_scanned bigint;
BEGIN
    expiring := 0; dormant := 0; more := false;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(2)) THEN
        RETURN;
    END IF;

    SELECT s.xact INTO v_xact FROM lanekeeper.expiring_session AS s ORDER BY s.xact LIMIT 1;
    -- An apply inserts ready entries for lanes that it saw: none is under way until this turn ends.
    IF FOUND AND lanekeeper.seen_by_every_snapshot(v_xact) AND pg_try_advisory_xact_lock(lanekeeper.apply_lock()) THEN
        SELECT array_agg(c.session_id) INTO v_chosen
        FROM (
            SELECT s.session_id FROM lanekeeper.expiring_session AS s WHERE s.xact = v_xact LIMIT 50
        ) AS c;
        -- Against producers, then against holders, survivors and operators.
        SELECT array_agg(t.session_id) INTO v_ids
        FROM (
            SELECT u.session_id, pg_try_advisory_xact_lock(lanekeeper.append_lock(u.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) AS locked
            FROM unnest(v_chosen) AS u (session_id)
        ) AS t WHERE t.locked;
        SELECT array_agg(t.session_id) INTO v_ids
        FROM (
            SELECT h.session_id, bool_and(pg_try_advisory_xact_lock(lanekeeper.lane_lock(h.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))) AS locked
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
        WHERE s.lanes_version = -1 AND lanekeeper.session_may_expire(s.session_id, p_days);
        SELECT array_agg(l.lane_id), array_agg(DISTINCT l.route) INTO v_lanes, v_routes
        FROM unnest(v_ids) AS u (session_id)
        CROSS JOIN LATERAL (
            SELECT l.lane_id, l.route FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0) AS l;
        -- A claim must find the lane of every ready entry.
        DELETE FROM lanekeeper.ready AS r WHERE r.route = ANY (v_routes) AND r.lane_id = ANY (v_lanes);
        DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = ANY (v_lanes);
        DELETE FROM lanekeeper.lane AS l WHERE l.lane_id = ANY (v_lanes);
        -- Its agent session: prompts must not outlive the log for ever.
        DELETE FROM lanekeeper.agent_session AS a WHERE a.session_id = ANY (v_ids);
        UPDATE lanekeeper.session AS s SET lanes_version = -2 WHERE s.session_id = ANY (v_ids);
        DELETE FROM lanekeeper.expiring_session AS s WHERE s.session_id = ANY (v_chosen);
        dormant := coalesce(cardinality(v_ids), 0);
        more := true;
        RETURN;
    END IF;

    SELECT r.scanned_to, r.begun_at INTO v_round FROM lanekeeper.session_round AS r;
    IF v_round.scanned_to = 0 THEN
        IF v_round.begun_at > clock_timestamp() - interval '1 hour' THEN
            RETURN;
        END IF;
        UPDATE lanekeeper.session_round AS r SET begun_at = clock_timestamp() WHERE r.single;
    END IF;
    SELECT max(b.session_id), count(*),
           array_agg(b.session_id) FILTER (WHERE b.lanes_version <> -2 AND NOT b.expiring
               AND b.created_at < clock_timestamp() - p_days * interval '1 day'
               AND lanekeeper.session_may_expire(b.session_id, p_days))
    INTO v_last, v_scanned, v_chosen
    FROM (
        SELECT s.session_id, s.lanes_version, s.created_at,
               EXISTS (SELECT FROM lanekeeper.expiring_session AS v WHERE v.session_id = s.session_id OFFSET 0) AS expiring
        FROM lanekeeper.session AS s WHERE s.session_id > v_round.scanned_to
        ORDER BY s.session_id LIMIT p_sessions
    ) AS b;
    SELECT array_agg(t.session_id) INTO v_ids
    FROM (
        SELECT u.session_id, pg_try_advisory_xact_lock(lanekeeper.append_lock(u.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) AS locked
        FROM unnest(v_chosen) AS u (session_id)
    ) AS t WHERE t.locked;
    IF v_ids IS NOT NULL THEN
        UPDATE lanekeeper.session AS s SET lanes_version = -1 WHERE s.session_id = ANY (v_ids);
        INSERT INTO lanekeeper.expiring_session (session_id) SELECT u.session_id FROM unnest(v_ids) AS u (session_id);
        expiring := cardinality(v_ids);
    END IF;
    more := v_scanned = p_sessions OR expiring > 0;
    UPDATE lanekeeper.session_round AS r SET scanned_to = CASE WHEN v_scanned = p_sessions THEN v_last ELSE 0 END
    WHERE r.single;
END
$$;
