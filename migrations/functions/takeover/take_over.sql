-- Takes over from lane connections that are gone: inserts ready entries for the lanes that they held (I13), and charges a
-- crash to the heads that a dead worker held. Returns a row per worker taken over.
--
-- Who is gone: a connection whose liveness lock is free. A worker takes over its own lost connections without a charge;
-- p_own_live are those that it uses, as far as it knows. If one of these is gone, the worker died after it sent this call:
-- nothing is done about them here, and survivors charge the death.
-- Another worker's are taken over where its own liveness lock is free too, which means that the process is gone as a
-- whole; or where its heartbeat is older than p_frozen_after_ms, without a charge (terminate_frozen ends its connections
-- first). A peer that lives takes over its own.
--
-- Crash charging: an event can kill each worker that delivers it and never return an error. So survivors count.
-- - No charge for connections opened before the server's start or in another epoch: the server died, not the worker. The
--   epoch is a row of an unlogged table, which a crash of the server and a promotion empty.
-- - One death is one charge for a head, whichever of the worker's connections had claimed it; while some connections are
--   not released yet, the next call takes them all.
-- - A head is charged only if it exists and nothing but other charges happened to it since the claim: its version + step
--   is ahead of the claimed one by 16 for each crash that it gained.
-- - A lane whose lock is not free stays in its claim for the next call: the server may be releasing locks one by one, or
--   another worker claimed it before it could be charged. If that one dies too, both deaths count; if it settles, neither.
-- - Workers may claim a dead one's lanes before the charge, so an event that kills can take several within a second. For
--   all those deaths its neighbours reach two charges and no more: beyond two a head is charged only for a worker that
--   delivered it alone, which is what claims do with a suspected poison event (two charges, `crashes` NULL in the claim).
-- - A lane given back without a change stays in its claim until all lanes of that claim are let go, so it may be charged
--   too, up to suspicion.
-- - At max_crashes the head is exhausted, by the worker that claims it next. Acceptance or a failed attempt resets the
--   count.
-- A worker calls this before its first claim: otherwise an event that kills all workers would be claimed again before it
-- is charged.
--
-- Rows of workers are removed in a loop: a plan may evaluate a lock function before the other conditions, and would take
-- the liveness lock of a worker that stays.
-- Bound: rows of the connections that are gone; nothing waits for a lock.
CREATE OR REPLACE FUNCTION lanekeeper.take_over(
    p_own_worker_id bigint, p_frozen_after_ms bigint, p_own_live bigint[] DEFAULT '{}'
)
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
    -- By worker, because a lane may be in the claims of two of its connections: one that was closing let it go,
    -- another claimed it. One death is one charge.
    FOR v_worker IN
        SELECT c.worker_id, array_agg(c.connection_id) AS connection_ids, min(c.opened_at) AS opened_at,
               bool_and(c.epoch = e.epoch) AS same_epoch
        FROM lanekeeper.lane_connection AS c LEFT JOIN lanekeeper.server_epoch AS e ON true
        WHERE c.connection_id <> ALL (p_own_live)
        GROUP BY c.worker_id
    LOOP
        SELECT array_agg(t.connection_id) FILTER (WHERE t.gone), bool_and(t.gone) INTO v_gone, v_all
        FROM (
            SELECT u.connection_id, pg_try_advisory_xact_lock(lanekeeper.connection_lock(u.connection_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) AS gone
            FROM unnest(v_worker.connection_ids) AS u (connection_id)
        ) AS t;
        CONTINUE WHEN v_gone IS NULL;
        v_charge := false;
        -- The caller's session would be granted its own liveness lock again: hence the comparison of ids.
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
            SELECT h.lane_id, pg_try_advisory_xact_lock(lanekeeper.lane_lock(h.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) AS locked
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
                  AND p.version + p.step - u.version = 16 * (p.crashes - u.crashes)
                  -- Several workers may have died of a neighbour before the first death was charged. A head that
                  -- they held among others becomes a suspected poison event by that and no more: only the
                  -- death of a worker that delivered it alone goes beyond.
                  AND (p.crashes < 2 OR u.crashes >= 2)
                  AND p.parked_at IS NULL AND u.lane_id = ANY (v_lanes)
                  -- A lane without an event to deliver has no head to charge.
                  AND (p.requeued_after IS NOT NULL OR EXISTS (
                      SELECT FROM lanekeeper.lane AS l JOIN lanekeeper.event AS e ON e.session_id = l.session_id
                      WHERE l.lane_id = u.lane_id AND e.seq > p.cursor AND e.day >= p.cursor_day))
            ), gone AS (
                DELETE FROM lanekeeper.progress AS p USING head AS h
                WHERE p.lane_id = h.lane_id AND p.version = h.version
                RETURNING p.lane_id
            )
            INSERT INTO lanekeeper.progress
                (lane_id, version, step, cursor, cursor_day, attempts, crashes, retry_at, last_error, requeued_after,
                 sent, ack_due_at)
            SELECT h.lane_id, h.version + 16, h.step, h.cursor, h.cursor_day, h.attempts, h.crashes + 1, h.retry_at,
                   coalesce(h.last_error, 'the worker died while it held this event'), h.requeued_after,
                   h.sent, h.ack_due_at
            FROM head AS h JOIN gone AS g ON g.lane_id = h.lane_id;
            GET DIAGNOSTICS charged = ROW_COUNT;
        END IF;

        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
        SELECT l.route, 0, clock_timestamp(), l.lane_id
        FROM unnest(v_lanes) AS u (lane_id) JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id;
        IF v_busy IS NOT NULL THEN
            -- The server may be releasing these locks right now, one by one: the next call tries again. Or a
            -- worker claimed the lanes before they could be charged: if that one dies too, both charges count; if it
            -- settles them, neither does.
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
            IF FOUND THEN
                DELETE FROM lanekeeper.subscription_report AS r WHERE r.worker_id = v_worker.worker_id;
            END IF;
        END IF;
    END LOOP;
    IF v_woken > 0 THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;
