-- Claims that walk no token twice and settlements that write one row for two, and dead letters that are
-- delivered again. A requeued one stays in `dead`, with the seq behind which it
-- comes; the lane's progress knows the first of these places, so that a lane without any pays nothing.
-- Whoever changes what is requeued has the lane's lock: a holder's view stays true while it holds the lane.

ALTER TABLE lanekeeper.dead
    ADD COLUMN requeued_at timestamptz,
    -- It is delivered before the first event behind this seq. NULL: it is not to be delivered.
    ADD COLUMN after_seq bigint,
    ADD CONSTRAINT requeued_iff_placed CHECK ((requeued_at IS NULL) = (after_seq IS NULL)),
    ADD CONSTRAINT resolved_is_not_requeued CHECK (resolution IS NULL OR after_seq IS NULL);
CREATE INDEX dead_requeued ON lanekeeper.dead (lane_id, after_seq, seq, dead_id) WHERE after_seq IS NOT NULL;

ALTER TABLE lanekeeper.operation DROP CONSTRAINT action_is_known;
ALTER TABLE lanekeeper.operation ADD CONSTRAINT action_is_known CHECK (action IN (
    'retry', 'skip', 'park', 'unpark', 'pause', 'resume', 'drop_dead_letter', 'requeue_dead_letter'));

-- The lock of what follows is asked for in short turns, over half a minute: producers queue behind a
-- request that waits. Where a transaction that has appended stays open for longer, migrate again after it.
DO $$
BEGIN
    FOR turn IN 1 .. 100 LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            LOCK TABLE lanekeeper.progress IN ACCESS EXCLUSIVE MODE;
            SET LOCAL lock_timeout = 0;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF turn = 100 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.2);
        END;
    END LOOP;
END
$$;
-- The least after_seq of the lane's requeued dead letters. NULL: it has none.
ALTER TABLE lanekeeper.progress ADD COLUMN requeued_after bigint;
ALTER TABLE lanekeeper.progress SET (fillfactor = 50);

-- The requeued dead letter of a lane that comes first. Index: dead_requeued. Rows: one.
CREATE FUNCTION lanekeeper.next_letter(IN p_lane_id bigint, OUT dead_id bigint, OUT seq bigint, OUT after_seq bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.dead_id, d.seq, d.after_seq FROM lanekeeper.dead AS d
    WHERE d.lane_id = p_lane_id AND d.after_seq IS NOT NULL
    ORDER BY d.after_seq, d.seq, d.dead_id LIMIT 1
$$;

-- What a lane delivers next: an event, or a requeued dead letter. NULL: nothing is left.
CREATE FUNCTION lanekeeper.lane_front(IN p_lane_id bigint, OUT seq bigint, OUT dead_id bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_letter record;
BEGIN
    SELECT lanekeeper.lane_head(l.session_id, p.cursor, p.cursor_day, s.events) INTO STRICT seq
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    CROSS JOIN LATERAL (
        SELECT p.cursor, p.cursor_day FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id
        ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE l.lane_id = p_lane_id;
    SELECT n.dead_id, n.seq, n.after_seq INTO v_letter FROM lanekeeper.next_letter(p_lane_id) AS n;
    IF seq IS NULL OR v_letter.after_seq < seq THEN
        seq := v_letter.seq;
        dead_id := v_letter.dead_id;
    END IF;
END
$$;

-- Takes a lane's lock until the transaction ends; the caller's lock_timeout bounds the wait.
CREATE FUNCTION lanekeeper.lock_lane(p_lane_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lanekeeper.lane_lock(p_lane_id));
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'LK007',
        MESSAGE = format('lane %s is being delivered and was not let go within 5 s: nothing was changed', p_lane_id),
        HINT = 'Try again, or pause the subscription first.';
END
$$;

-- Writes down that other dead letters of a lane are requeued than before. Where another one is in front
-- now, or an event, it is tried at once, from its first attempt on; what was in front before starts anew
-- when its turn comes. The caller has the lane's lock.
CREATE FUNCTION lanekeeper.replace_letters(p_lane_id bigint, p_front_changed boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_progress lanekeeper.progress%ROWTYPE;
BEGIN
    SELECT p.* INTO STRICT v_progress FROM lanekeeper.progress AS p
    WHERE p.lane_id = p_lane_id ORDER BY p.version DESC LIMIT 1;
    SELECT n.after_seq INTO v_progress.requeued_after FROM lanekeeper.next_letter(p_lane_id) AS n;
    IF p_front_changed THEN
        v_progress.attempts := 0;
        v_progress.crashes := 0;
        v_progress.retry_at := NULL;
        v_progress.last_error := NULL;
    END IF;
    DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id AND p.version = v_progress.version;
    INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, crashes, retry_at, parked_at,
                                     last_error, requeued_after)
    VALUES (p_lane_id, v_progress.version + 1, v_progress.cursor, v_progress.cursor_day, v_progress.attempts,
            v_progress.crashes, v_progress.retry_at, v_progress.parked_at, v_progress.last_error,
            v_progress.requeued_after);
    -- Otherwise what is in front has its token.
    IF p_front_changed AND v_progress.parked_at IS NULL THEN
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
        SELECT l.route, 0, clock_timestamp(), l.lane_id FROM lanekeeper.lane AS l WHERE l.lane_id = p_lane_id;
        PERFORM lanekeeper.ring();
    END IF;
END
$$;

-- Has dead letters delivered again: at their place, which is before everything that their lane has not
-- delivered yet, or at the end, behind what is committed by now. In one transaction, lane by lane; waits for
-- a running delivery up to 5 s each. Returns what came of each id: requeued, requeued_before (it waits for
-- its delivery already), resolved (it was dealt with). SQLSTATEs: LK006 invalid, LK007 lane busy; nothing
-- was changed then.
CREATE FUNCTION lanekeeper.requeue_dead_letters(
    p_dead_ids bigint[], p_at_end boolean DEFAULT false, p_reason text DEFAULT NULL
) RETURNS TABLE (dead_id bigint, result text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
    v_unknown bigint[];
    v_lane    record;
    v_letter  record;
    v_before  record;
    v_after   record;
    v_newest  bigint;
    v_any     boolean;
BEGIN
    SELECT array_agg(u.dead_id) INTO v_unknown FROM unnest(p_dead_ids) AS u (dead_id)
    WHERE NOT EXISTS (SELECT FROM lanekeeper.dead AS d WHERE d.dead_id = u.dead_id);
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('there is no dead letter %s: nothing was changed', array_to_string(v_unknown, ', ')),
            HINT = 'List them with `lanekeeper dead list --all`.';
    END IF;
    -- Lanes in the order of their ids: two calls that name the same ones do not deadlock.
    FOR v_lane IN
        SELECT l.lane_id, l.session_id, l.subscription_id, s.name, s.removed_at
        FROM lanekeeper.lane AS l JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
        WHERE l.lane_id IN (SELECT d.lane_id FROM lanekeeper.dead AS d WHERE d.dead_id = ANY (p_dead_ids))
        ORDER BY l.lane_id
    LOOP
        IF v_lane.removed_at IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('the subscription %s was removed and delivers nothing: nothing was changed', v_lane.name),
                HINT = 'Apply a file that has it, then requeue.';
        END IF;
        PERFORM lanekeeper.lock_lane(v_lane.lane_id);
        SELECT f.seq, f.dead_id INTO v_before FROM lanekeeper.lane_front(v_lane.lane_id) AS f;
        SELECT greatest(p.cursor, coalesce(e.seq, 0)), p.parked_at IS NOT NULL INTO v_newest, v_any
        FROM (
            SELECT p.cursor, p.cursor_day, p.parked_at FROM lanekeeper.progress AS p
            WHERE p.lane_id = v_lane.lane_id ORDER BY p.version DESC LIMIT 1
        ) AS p
        LEFT JOIN LATERAL (
            SELECT e.seq FROM lanekeeper.event AS e
            WHERE e.session_id = v_lane.session_id AND e.day >= p.cursor_day ORDER BY e.seq DESC LIMIT 1
        ) AS e ON true;
        IF v_any THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('lane %s is parked and delivers nothing: nothing was changed', v_lane.lane_id),
                HINT = format('See why with `lanekeeper lane show %1$s`, unpark it with `lanekeeper lane unpark %1$s`, '
                              'then requeue.', v_lane.lane_id);
        END IF;
        v_any := false;
        FOR v_letter IN
            SELECT d.dead_id, d.seq, d.resolution, d.after_seq FROM lanekeeper.dead AS d
            WHERE d.dead_id = ANY (p_dead_ids) AND d.lane_id = v_lane.lane_id
            ORDER BY d.dead_id FOR UPDATE
        LOOP
            dead_id := v_letter.dead_id;
            IF v_letter.resolution IS NOT NULL THEN
                result := 'resolved';
            ELSIF v_letter.after_seq IS NOT NULL THEN
                result := 'requeued_before';
            ELSE
                result := 'requeued';
                v_any := true;
                UPDATE lanekeeper.dead AS d
                SET requeued_at = clock_timestamp(),
                    after_seq = CASE WHEN p_at_end THEN v_newest ELSE v_letter.seq - 1 END
                WHERE d.dead_id = v_letter.dead_id;
                INSERT INTO lanekeeper.operation (action, subscription_id, lane_id, seq, reason)
                VALUES ('requeue_dead_letter', v_lane.subscription_id, v_lane.lane_id, v_letter.seq, p_reason);
            END IF;
            RETURN NEXT;
        END LOOP;
        IF v_any THEN
            SELECT f.seq, f.dead_id INTO v_after FROM lanekeeper.lane_front(v_lane.lane_id) AS f;
            PERFORM lanekeeper.replace_letters(v_lane.lane_id, v_before IS DISTINCT FROM v_after);
        END IF;
    END LOOP;
END
$$;

-- Marks a dead letter as dealt with. False where it was already, or is not there. One that is requeued is
-- not delivered then; a running delivery is waited for up to 5 s. SQLSTATE: LK007 lane busy.
CREATE OR REPLACE FUNCTION lanekeeper.drop_dead_letter(p_dead_id bigint, p_reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    v_lane_id bigint;
    v_before  record;
    v_after   record;
BEGIN
    UPDATE lanekeeper.dead AS d SET resolution = 'dropped', resolved_at = clock_timestamp()
    WHERE d.dead_id = p_dead_id AND d.resolution IS NULL AND d.after_seq IS NULL;
    IF NOT FOUND THEN
        SELECT d.lane_id INTO v_lane_id FROM lanekeeper.dead AS d
        WHERE d.dead_id = p_dead_id AND d.resolution IS NULL;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        PERFORM lanekeeper.lock_lane(v_lane_id);
        SELECT f.seq, f.dead_id INTO v_before FROM lanekeeper.lane_front(v_lane_id) AS f;
        UPDATE lanekeeper.dead AS d
        SET resolution = 'dropped', resolved_at = clock_timestamp(), requeued_at = NULL, after_seq = NULL
        WHERE d.dead_id = p_dead_id AND d.resolution IS NULL;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        SELECT f.seq, f.dead_id INTO v_after FROM lanekeeper.lane_front(v_lane_id) AS f;
        PERFORM lanekeeper.replace_letters(v_lane_id, v_before IS DISTINCT FROM v_after);
    END IF;
    INSERT INTO lanekeeper.operation (action, lane_id, seq, reason)
    SELECT 'drop_dead_letter', d.lane_id, d.seq, p_reason FROM lanekeeper.dead AS d WHERE d.dead_id = p_dead_id;
    RETURN true;
END
$$;

-- One operator action on one lane: retry (now), skip (the head), park, unpark. Waits for a running
-- delivery up to 5 s. With p_head, nothing is done unless that seq is still the head: what an
-- operator saw may have been delivered since. Where a requeued dead letter is the head, skip makes it wait
-- for an operator again. Returns the lane's new state. SQLSTATEs: LK006 invalid,
-- LK007 lane busy, LK008 another head.
CREATE OR REPLACE FUNCTION lanekeeper.change_lane(
    p_lane_id bigint, p_action text, p_reason text DEFAULT NULL, p_head bigint DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    v_lane     record;
    v_progress lanekeeper.progress%ROWTYPE;
    v_head     bigint;
    v_dead_id  bigint;
BEGIN
    SELECT l.lane_id, l.session_id, l.subscription_id, l.route INTO v_lane
    FROM lanekeeper.lane AS l
    WHERE l.lane_id = p_lane_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = format('there is no lane %s', p_lane_id),
            HINT = 'List lanes with `lanekeeper lane list`.';
    END IF;
    PERFORM lanekeeper.lock_lane(p_lane_id);
    SELECT p.* INTO STRICT v_progress FROM lanekeeper.progress AS p
    WHERE p.lane_id = p_lane_id ORDER BY p.version DESC LIMIT 1;
    SELECT f.seq, f.dead_id INTO v_head, v_dead_id FROM lanekeeper.lane_front(p_lane_id) AS f;
    IF p_head <> coalesce(v_head, 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'LK008',
            MESSAGE = format('seq %s is not the head of lane %s any more: nothing was changed', p_head, p_lane_id),
            HINT = 'Look at the lane again with `lanekeeper lane show`.';
    END IF;

    CASE p_action
    WHEN 'park' THEN
        v_progress.parked_at := clock_timestamp();
        v_progress.last_error := coalesce(p_reason, v_progress.last_error, 'parked by an operator');
    WHEN 'unpark', 'retry' THEN
        v_progress.parked_at := NULL;
        v_progress.attempts := 0;
        v_progress.crashes := 0;
    WHEN 'skip' THEN
        IF v_head IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('lane %s has no undelivered event to skip', p_lane_id);
        END IF;
        IF v_dead_id IS NOT NULL THEN
            UPDATE lanekeeper.dead AS d SET requeued_at = NULL, after_seq = NULL WHERE d.dead_id = v_dead_id;
            SELECT n.after_seq INTO v_progress.requeued_after FROM lanekeeper.next_letter(p_lane_id) AS n;
        ELSE
            INSERT INTO lanekeeper.outcome (lane_id, seq, kind, error)
            VALUES (p_lane_id, v_head, 'skipped', coalesce(p_reason, v_progress.last_error))
            ON CONFLICT DO NOTHING;
            SELECT e.day INTO v_progress.cursor_day FROM lanekeeper.event AS e
            WHERE e.session_id = v_lane.session_id AND e.seq = v_head AND e.day >= v_progress.cursor_day;
            v_progress.cursor := v_head;
        END IF;
        v_progress.parked_at := NULL;
        v_progress.attempts := 0;
        v_progress.crashes := 0;
        v_progress.last_error := NULL;
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('unknown action %L: use retry, skip, park or unpark', p_action);
    END CASE;

    DELETE FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id AND p.version = v_progress.version;
    INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, crashes, parked_at, last_error,
                                     requeued_after)
    VALUES (p_lane_id, v_progress.version + 1, v_progress.cursor, v_progress.cursor_day, v_progress.attempts,
            v_progress.crashes, v_progress.parked_at, v_progress.last_error, v_progress.requeued_after);
    INSERT INTO lanekeeper.operation (action, subscription_id, lane_id, seq, reason)
    VALUES (p_action, v_lane.subscription_id, p_lane_id, v_head, p_reason);
    IF v_progress.parked_at IS NOT NULL THEN
        -- Its token is found to be a spare one by the next claim.
        RETURN 'parked';
    END IF;
    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
    VALUES (v_lane.route, 0, clock_timestamp(), p_lane_id);
    PERFORM lanekeeper.ring();
    RETURN 'ready';
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
                  -- Several workers may have died of a neighbour before the first of them was charged for.
                  -- What they held among others becomes suspect by that and no more: only a death of a
                  -- worker that delivered it alone goes beyond.
                  AND (p.crashes < 2 OR u.crashes >= 2)
                  AND p.parked_at IS NULL AND u.lane_id = ANY (v_lanes)
                  -- A lane that was only being looked at has no head to charge.
                  AND (p.requeued_after IS NOT NULL OR EXISTS (
                      SELECT FROM lanekeeper.lane AS l JOIN lanekeeper.event AS e ON e.session_id = l.session_id
                      WHERE l.lane_id = u.lane_id AND e.seq > p.cursor AND e.day >= p.cursor_day))
            ), gone AS (
                DELETE FROM lanekeeper.progress AS p USING head AS h
                WHERE p.lane_id = h.lane_id AND p.version = h.version
                RETURNING p.lane_id
            )
            INSERT INTO lanekeeper.progress
                (lane_id, version, cursor, cursor_day, attempts, crashes, retry_at, last_error, requeued_after)
            SELECT h.lane_id, h.version + 1, h.cursor, h.cursor_day, h.attempts, h.crashes + 1, h.retry_at,
                   coalesce(h.last_error, 'the worker died while it held this event'), h.requeued_after
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

CREATE OR REPLACE VIEW lanekeeper.lane_status AS
SELECT t.name AS stream, n.name AS session, s.name AS subscription, l.lane_id,
       CASE WHEN s.removed_at IS NOT NULL THEN 'removed'
            WHEN p.parked_at IS NOT NULL THEN 'parked'
            WHEN h.lane_id IS NOT NULL THEN 'held'
            WHEN s.paused_at IS NOT NULL THEN 'paused'
            WHEN p.retry_at > clock_timestamp() THEN 'blocked'
            WHEN head.seq IS NULL AND letter.seq IS NULL THEN 'idle'
            ELSE 'ready' END AS state,
       p.cursor, coalesce(newest.seq, p.cursor) AS newest_seq, coalesce(newest.seq - p.cursor, 0) AS behind,
       coalesce(letter.seq, head.seq) AS head_seq, coalesce(letter.created_at, head.created_at) AS head_created_at,
       p.attempts, p.crashes, p.retry_at, p.parked_at, p.last_error, p.changed_at,
       h.worker_id AS held_by, letter.dead_id AS head_dead_id
FROM lanekeeper.lane AS l
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
CROSS JOIN LATERAL (
    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p
LEFT JOIN LATERAL (
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE e.session_id = l.session_id AND e.day >= p.cursor_day ORDER BY e.seq DESC LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT e.seq, e.created_at FROM lanekeeper.event AS e
    WHERE e.session_id = l.session_id AND e.seq > p.cursor AND e.day >= p.cursor_day
      AND (s.events IS NULL OR e.event_type = ANY (s.events))
    ORDER BY e.seq LIMIT 1
) AS head ON true
LEFT JOIN LATERAL (
    SELECT d.seq, d.created_at, d.dead_id FROM lanekeeper.next_letter(l.lane_id) AS n
    JOIN lanekeeper.dead AS d ON d.dead_id = n.dead_id
    WHERE p.requeued_after IS NOT NULL AND (head.seq IS NULL OR n.after_seq < head.seq)
) AS letter ON true
LEFT JOIN lanekeeper.held_lane AS h ON h.lane_id = l.lane_id;

-- An event per subscription of its stream, with its state there: pending, delivering, retrying,
-- parked, delivered, requeued (a dead letter that is to be delivered again), or the outcome that it came to
-- instead.
CREATE OR REPLACE VIEW lanekeeper.message AS
SELECT t.name AS stream, n.name AS session, e.seq, e.message_id, e.event_type, e.priority, e.created_at,
       e.payload::jsonb AS payload, e.headers, s.name AS subscription,
       CASE WHEN s.subscription_id IS NULL THEN 'unsubscribed'
            WHEN p.requeued_after IS NOT NULL AND EXISTS (
                SELECT FROM lanekeeper.dead AS d
                WHERE d.lane_id = l.lane_id AND d.seq = e.seq AND d.after_seq IS NOT NULL) THEN 'requeued'
            WHEN e.seq <= p.cursor THEN coalesce(o.kind, CASE
                WHEN s.events IS NULL OR e.event_type = ANY (s.events) THEN 'delivered' ELSE 'filtered' END)
            WHEN NOT (s.events IS NULL OR e.event_type = ANY (s.events)) THEN 'filtered'
            WHEN e.seq > head.seq OR p.requeued_after < head.seq THEN 'pending'
            WHEN p.parked_at IS NOT NULL THEN 'parked'
            WHEN p.retry_at > clock_timestamp() THEN 'retrying'
            WHEN EXISTS (SELECT FROM lanekeeper.held_lane AS h WHERE h.lane_id = l.lane_id) THEN 'delivering'
            ELSE 'pending' END AS state,
       -- They are the requeued dead letter's where one comes first.
       CASE WHEN e.seq = head.seq AND (p.requeued_after < head.seq) IS NOT TRUE THEN p.attempts END AS attempts,
       coalesce(o.error, CASE WHEN e.seq = head.seq AND (p.requeued_after < head.seq) IS NOT TRUE
                              THEN p.last_error END) AS error,
       o.replaced_by, o.settled_at
FROM lanekeeper.event AS e
JOIN lanekeeper.session AS n ON n.session_id = e.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
LEFT JOIN lanekeeper.lane AS l ON l.session_id = e.session_id
LEFT JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
LEFT JOIN LATERAL (
    SELECT p.* FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
) AS p ON true
LEFT JOIN lanekeeper.outcome AS o ON o.lane_id = l.lane_id AND o.seq = e.seq
LEFT JOIN LATERAL (
    SELECT lanekeeper.lane_head(l.session_id, p.cursor, p.cursor_day, s.events) AS seq
) AS head ON true;

CREATE OR REPLACE VIEW lanekeeper.dead_letter AS
SELECT d.dead_id, t.name AS stream, n.name AS session, d.seq, s.name AS subscription, d.message_id, d.event_type,
       d.payload, d.headers, d.created_at, d.attempts, d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id
FROM lanekeeper.dead AS d
JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id;

-- What came of requeued dead letters, in a settlement that hit: redelivered, their destination has accepted
-- them, and the events count as delivered; dead_lettered_again, they were exhausted once more and wait for an
-- operator. p_ords are places in p_lanes and p_hit.
CREATE FUNCTION lanekeeper.settle_letters(
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
        WHERE p.lane_id = v_lane_id AND p.version = p_versions[p_ords[i]] + 1;
    END LOOP;
END
$$;

DROP FUNCTION lanekeeper.claim(bigint, bigint, int[], int[], timestamptz[], int, bigint[]);

-- Walks the due tokens of the given routes, highest priority first, and takes the lane locks of up
-- to p_limit lanes. Writes nothing but the claim's own row: the tokens stay, so that a crash at
-- any point leaves them there.
--
-- p_bounds, p_bound_ids: the walk of a route starts behind that token. What an earlier walk passed need
-- not be walked again, deleted tokens and those of held lanes above all. An instant long ago walks all.
-- p_held: lanes that the worker holds already, in ascending order (session locks are
-- re-entrant, and every held lane's token may be walked: they are looked up by bisection).
-- Returns one row of arrays. For each token that was taken: lane_ids to parked, and requeued_after. A lane
-- that has two tokens in one walk is there twice and is locked twice: the caller goes by the first and
-- unlocks it once for the other. For each route, in the order given: the next bound and, if nothing was taken,
-- the time until its next token is due. A walk that came to its limit is continued where it ended; after
-- one that saw all that was due, the next starts at the first token that is there, whoever holds its lane:
-- so what a holder that dies leaves behind is seen at once where there is little to do, and by the next
-- walk of all where there is much.
--
-- OFFSET 0 keeps the lock above the walk whatever the plan below is, and LIMIT stops the walk: no lock
-- is taken that is not returned. The tokens' rows are not locked: that would be a write for each. A
-- settlement may have replaced a token after the walk's snapshot and given the lane back before its lock
-- was tried. So each is looked for once more when the lane is ours and nobody else can touch it.
-- Index: ready's primary key.
CREATE FUNCTION lanekeeper.claim(
    IN p_connection_id bigint, IN p_claim_id bigint,
    IN p_routes int[], IN p_rooms int[], IN p_bounds timestamptz[], IN p_bound_ids bigint[], IN p_limit int,
    IN p_held bigint[],
    OUT lane_ids bigint[], OUT routes int[], OUT priorities smallint[], OUT tokens tid[], OUT token_ids bigint[],
    OUT session_ids bigint[], OUT sessions text[], OUT versions bigint[], OUT cursors bigint[], OUT cursor_days date[],
    OUT attempts int[], OUT crashes int[], OUT waits_ms bigint[], OUT parked boolean[],
    OUT bounds timestamptz[], OUT bound_ids bigint[], OUT due_in_ms bigint[], OUT requeued_after bigint[]
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
    v_found       int[];
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
                               array_agg(t.token), array_agg(t.id), max(t.due_at)
                        INTO v_count, v_lane_ids, v_session_ids, v_sessions, v_tokens, v_token_ids, v_last_at
                        FROM (
                            SELECT w.lane_id, w.session_id, w.session, w.token, w.id, w.due_at
                            FROM (
                                SELECT r.lane_id, r.session_id, r.session, r.ctid AS token, r.id, r.due_at
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
                routes := routes || array_fill(p_routes[i], ARRAY[v_count]);
                priorities := priorities || array_fill(v_priority, ARRAY[v_count]);
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

    -- A statement of its own: its snapshot is taken after the locks.
    SELECT array_agg(i), array_agg(p.version), array_agg(p.cursor), array_agg(p.cursor_day),
           array_agg(p.attempts), array_agg(p.crashes),
           array_agg(CASE WHEN p.retry_at > v_now THEN ceil(extract(epoch FROM p.retry_at - v_now) * 1000)::bigint END),
           array_agg(p.parked_at IS NOT NULL), array_agg(p.requeued_after)
    INTO v_found, versions, cursors, cursor_days, attempts, crashes, waits_ms, parked, requeued_after
    FROM generate_series(1, cardinality(lane_ids)) AS i
    JOIN lanekeeper.ready AS r ON r.ctid = tokens[i] AND r.id = token_ids[i]
    CROSS JOIN LATERAL (
        SELECT p.version, p.cursor, p.cursor_day, p.attempts, p.crashes, p.retry_at, p.parked_at, p.requeued_after
        FROM lanekeeper.progress AS p WHERE p.lane_id = lane_ids[i]
        ORDER BY p.version DESC LIMIT 1
    ) AS p;

    -- A token may have been replaced since the walk, and may outlive its lane, where a session was removed.
    IF cardinality(v_found) IS DISTINCT FROM cardinality(lane_ids) THEN
        WITH orphan AS (
            DELETE FROM lanekeeper.ready AS r USING generate_series(1, cardinality(lane_ids)) AS i
            WHERE i <> ALL (coalesce(v_found, '{}')) AND r.ctid = tokens[i] AND r.id = token_ids[i]
        )
        SELECT array_agg(pg_advisory_unlock(lanekeeper.lane_lock(lane_ids[i]))) IS NULL INTO v_full
        FROM generate_series(1, cardinality(lane_ids)) AS i WHERE i <> ALL (coalesce(v_found, '{}'));
        SELECT coalesce(array_agg(lane_ids[i]), '{}'), array_agg(session_ids[i]), array_agg(sessions[i]),
               array_agg(tokens[i]), array_agg(token_ids[i]), array_agg(routes[i]), array_agg(priorities[i])
        INTO lane_ids, session_ids, sessions, tokens, token_ids, routes, priorities
        FROM unnest(v_found) AS i;
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

    INSERT INTO lanekeeper.claim (connection_id, claim_id, lane_ids, versions, crashes)
    SELECT p_connection_id, p_claim_id, lane_ids, versions, array_agg(CASE WHEN c < 2 THEN c END)
    FROM unnest(crashes) AS c;
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
-- Where `changed` is false, progress is not written. p_delays_ms, p_errors and p_history_from are empty
-- where no lane has any. `p_outcome_ords` are places in `p_lanes`. Returns the places that were written,
-- and what each came to; a lane that is not among them was settled by somebody else, and nothing was
-- written for it:
--   1 done     as asked
--   2 idle     finish: nothing is left
--   3 more     finish: there are newer events
--   4 busy     finish: nothing newer is committed, but a producer holds the session's append lock; the token stays
-- The caller unlocks, after this has committed, what is no longer its own.
--
-- A token is found by its place and its id. Where it is no longer there (the table was rewritten) it
-- stays, and the next claim finds it to be a spare one.
CREATE OR REPLACE FUNCTION lanekeeper.settle(
    p_worker_id bigint,
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_operations smallint[], p_changed boolean[],
    p_cursors bigint[], p_days date[], p_attempts int[], p_crashes int[], p_delays_ms bigint[], p_errors text[],
    p_routes int[], p_priorities smallint[], p_tokens tid[], p_token_ids bigint[], p_history_from bigint[],
    p_outcome_ords int[], p_outcome_seqs bigint[], p_outcome_kinds text[], p_outcome_replaced_by bigint[],
    p_outcome_errors text[], p_outcome_attempts int[], p_outcome_crashes int[],
    OUT ords int[], OUT results smallint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_locked boolean[];
    v_ord    int;
    v_hit    boolean[];
BEGIN
    -- Shared with the other holders of the session's lanes, exclusive against its producers.
    SELECT array_agg(CASE WHEN p_operations[i] = 2
                          THEN pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(p_sessions[i]))
                          ELSE false END)
    INTO v_locked
    FROM generate_series(1, cardinality(p_lanes)) AS i;

    -- In a statement of its own: its snapshot was taken after the append locks. The compare-and-set
    -- (I5) is on the version. As the key changes, this is a delete and an insert to Postgres, with one
    -- search and one record in the log: the newest version is still the first entry found.
    WITH moved AS (
        UPDATE lanekeeper.progress AS p
        SET version = p.version + 1, cursor = p_cursors[i], cursor_day = p_days[i],
            attempts = p_attempts[i], crashes = p_crashes[i],
            retry_at = CASE WHEN p_operations[i] = 3 THEN v_now + p_delays_ms[i] * interval '1 ms' END,
            parked_at = CASE WHEN p_operations[i] = 4 THEN v_now END,
            last_error = p_errors[i], changed_at = v_now
        FROM generate_series(1, cardinality(p_lanes)) AS i
        WHERE p_changed[i] AND p.lane_id = p_lanes[i] AND p.version = p_versions[i]
        RETURNING i, p.requeued_after
    ), hit AS (
        -- More without the lock too: what is committed need not wait for the append that has it.
        SELECT h.i, p_operations[h.i] = 2 AND (h.requeued_after IS NOT NULL OR EXISTS (
               SELECT FROM lanekeeper.event AS e
               WHERE e.session_id = p_sessions[h.i] AND e.seq > p_cursors[h.i] AND e.day >= p_days[h.i])) AS more
        FROM (
            SELECT i, requeued_after FROM moved
            UNION ALL
            SELECT i, NULL FROM generate_series(1, cardinality(p_lanes)) AS i WHERE NOT p_changed[i]
        ) AS h
    ), token AS (
        DELETE FROM lanekeeper.ready AS r USING hit AS h
        WHERE (p_operations[h.i] = 2 AND v_locked[h.i] AND NOT h.more OR p_operations[h.i] BETWEEN 3 AND 6)
          AND r.ctid = p_tokens[h.i] AND r.id = p_token_ids[h.i]
    )
    SELECT array_agg(h.i),
           array_agg((CASE WHEN p_operations[h.i] <> 2 THEN 1
                           WHEN h.more THEN 3
                           WHEN v_locked[h.i] THEN 2
                           ELSE 4 END)::smallint)
    INTO ords, results
    FROM hit AS h;

    INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id)
    SELECT p_routes[i], p_priorities[i],
           CASE p_operations[i] WHEN 3 THEN v_now + p_delays_ms[i] * interval '1 ms' ELSE v_now END,
           p_lanes[i], p_sessions[i]
    FROM unnest(ords) AS i
    WHERE p_operations[i] IN (3, 5);

    IF cardinality(p_history_from) > 0 THEN
        INSERT INTO lanekeeper.history (lane_id, from_seq, to_seq, attempts, worker_id, settled_at)
        SELECT p_lanes[i], p_history_from[i], p_cursors[i], p_attempts[i], p_worker_id, v_now
        FROM unnest(ords) AS i
        WHERE p_history_from[i] <= p_cursors[i];
    END IF;

    IF cardinality(p_outcome_ords) > 0 THEN
        -- On disk before the successor is delivered: if it were lost with the server, the event would come
        -- again, behind its successor. Another settlement that is lost is a redelivery, in order.
        IF p_outcome_kinds && '{dead_lettered,dropped,dead_lettered_again}' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        v_hit := array_fill(false, ARRAY[cardinality(p_lanes)]);
        FOREACH v_ord IN ARRAY coalesce(ords, '{}') LOOP
            v_hit[v_ord] := true;
        END LOOP;
        WITH due AS MATERIALIZED (
            SELECT o.*, p_lanes[o.ord] AS lane_id, p_sessions[o.ord] AS session_id
            FROM unnest(p_outcome_ords, p_outcome_seqs, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                        p_outcome_attempts, p_outcome_crashes)
                 AS o (ord, seq, kind, replaced_by, error, attempts, crashes)
            WHERE v_hit[o.ord] AND o.kind NOT IN ('redelivered', 'dead_lettered_again')
        ), dead AS (
            INSERT INTO lanekeeper.dead
                (lane_id, seq, message_id, event_type, payload, headers, created_at, attempts, crashes, error)
            SELECT d.lane_id, d.seq, e.message_id, e.event_type, e.payload::jsonb, e.headers, e.created_at,
                   d.attempts, d.crashes, d.error
            FROM due AS d
            JOIN lanekeeper.event AS e ON e.session_id = d.session_id AND e.seq = d.seq
            WHERE d.kind = 'dead_lettered'
        )
        INSERT INTO lanekeeper.outcome (lane_id, seq, kind, replaced_by, error)
        SELECT d.lane_id, d.seq, d.kind, d.replaced_by, d.error FROM due AS d
        -- A replayed event may come to a second outcome; the first stays on record.
        ON CONFLICT DO NOTHING;
        IF p_outcome_kinds && '{redelivered,dead_lettered_again}' THEN
            PERFORM lanekeeper.settle_letters(
                p_lanes, p_versions, v_hit, p_outcome_ords, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                p_outcome_attempts, p_outcome_crashes);
        END IF;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION lanekeeper.claim, lanekeeper.next_letter, lanekeeper.lane_front, lanekeeper.lock_lane,
    lanekeeper.replace_letters, lanekeeper.requeue_dead_letters, lanekeeper.settle_letters FROM PUBLIC;
