-- Moves lanes of host-bound subscriptions to the routes of their sessions' hosts, where these may have changed: up to
-- p_changes rows of host_change. Returns how many lanes it moved.
-- Called by workers at the poll floor, in a short transaction of its own: neither the agent registry nor an operator's
-- transaction, which may stay open, moves a lane.
--
-- A lane is moved under its session's append lock, its own lock and its row's, so that nobody delivers it (I2) and nobody
-- writes a ready entry for it: appends have the first lock, holders the second, and all others read the route with
-- entry_route(), which locks the row. None of them is waited for, but for a few lanes that are held, and for them 200 ms:
-- a lock that somebody waits for is granted to him when the holder lets go, and not to the next claim.
--
-- The lane's ready entries go to the new route with it (I13). They are due no earlier than now: a low-water mark counts on
-- nothing appearing below it. A claim on the old route that saw an entry before finds it gone, and gives the lane back.
--
-- A change is done with when no transaction is left that may not have seen it, such as one that made a lane meanwhile, and
-- no lane was left out after that. Until then it is looked at again, ever less often: an unrelated transaction may stay
-- open. `more`: others are due.
-- Index: host_change_by_look; session by name in each stream; lane's (session_id, subscription_id); ready's primary
-- key, of which the entries of the routes that lanes leave are read. Rows: the lanes of the sessions concerned.
CREATE OR REPLACE FUNCTION lanekeeper.finish_moving(IN p_changes int, OUT moved bigint, OUT more boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_change  record;
    v_lane    record;
    v_host    text;
    v_route   int;
    v_locked  boolean;
    v_over    boolean;
    v_looked  int := 0;
    v_left    boolean;
    -- How many lanes that are held may still be waited for.
    v_waits   int := 5;
    v_lanes   bigint[] := '{}';
    v_from    int[] := '{}';
    v_to      int[] := '{}';
BEGIN
    moved := 0; more := false;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(7)) THEN
        RETURN;
    END IF;
    FOR v_change IN
        SELECT c.change_id, c.session, c.xact, c.barrier FROM lanekeeper.host_change AS c
        WHERE c.look_at <= clock_timestamp() ORDER BY c.look_at LIMIT p_changes
    LOOP
        v_looked := v_looked + 1;
        -- Before the lanes are read, in statements of their own.
        IF v_change.barrier IS NULL THEN
            v_over := false;
            IF lanekeeper.seen_by_every_snapshot(v_change.xact) THEN
                UPDATE lanekeeper.host_change AS c SET barrier = pg_current_xact_id() WHERE c.change_id = v_change.change_id;
            END IF;
        ELSE
            v_over := lanekeeper.over_before(v_change.barrier);
        END IF;
        v_left := false;
        FOR v_lane IN
            SELECT l.lane_id, l.session_id, l.subscription_id, n.stream_id
            FROM lanekeeper.stream AS t
            JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = v_change.session
            JOIN lanekeeper.lane AS l ON l.session_id = n.session_id
            WHERE l.route < 0
            ORDER BY l.lane_id
        LOOP
            -- Another change of the same session may have been before.
            CONTINUE WHEN v_lane.lane_id = ANY (v_lanes);
            v_host := lanekeeper.host_of_session(v_lane.stream_id, v_change.session);
            CONTINUE WHEN EXISTS (
                SELECT FROM lanekeeper.lane AS l JOIN lanekeeper.host_route AS r ON r.route = l.route
                WHERE l.lane_id = v_lane.lane_id AND r.host = v_host);
            v_locked := pg_try_advisory_xact_lock(lanekeeper.lane_lock(v_lane.lane_id));
            IF NOT v_locked AND v_waits > 0 THEN
                v_waits := v_waits - 1;
                BEGIN
                    PERFORM pg_advisory_xact_lock(lanekeeper.lane_lock(v_lane.lane_id));
                    v_locked := true;
                EXCEPTION WHEN lock_not_available THEN
                    -- Its holder keeps it; one that only waits for a limit lets it go.
                    PERFORM pg_notify('lanekeeper_wanted', v_lane.lane_id::text);
                END;
            END IF;
            IF NOT v_locked OR NOT pg_try_advisory_xact_lock(lanekeeper.append_lock(v_lane.session_id)) THEN
                v_left := true;
                CONTINUE;
            END IF;
            -- In a statement of its own, after the locks.
            SELECT l.route INTO v_route FROM lanekeeper.lane AS l
            WHERE l.lane_id = v_lane.lane_id FOR NO KEY UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                -- Locked, unless maintenance removed it.
                v_left := v_left OR EXISTS (SELECT FROM lanekeeper.lane AS l WHERE l.lane_id = v_lane.lane_id);
                CONTINUE;
            END IF;
            INSERT INTO lanekeeper.host_route (subscription_id, host) VALUES (v_lane.subscription_id, v_host)
            ON CONFLICT DO NOTHING;
            v_lanes := v_lanes || v_lane.lane_id;
            v_from := v_from || v_route;
            SELECT v_to || r.route INTO STRICT v_to FROM lanekeeper.host_route AS r
            WHERE r.subscription_id = v_lane.subscription_id AND r.host = v_host;
        END LOOP;
        IF v_over AND NOT v_left THEN
            DELETE FROM lanekeeper.host_change AS c WHERE c.change_id = v_change.change_id;
        ELSE
            UPDATE lanekeeper.host_change AS c
            SET look_at = clock_timestamp() + CASE WHEN v_left THEN interval '200 ms' ELSE
                    greatest(interval '200 ms', least(clock_timestamp() - c.changed_at, interval '1 minute')) END
            WHERE c.change_id = v_change.change_id;
        END IF;
    END LOOP;
    more := v_looked = p_changes;
    IF cardinality(v_lanes) > 0 THEN
        UPDATE lanekeeper.lane AS l SET route = u.route
        FROM unnest(v_lanes, v_to) AS u (lane_id, route) WHERE l.lane_id = u.lane_id;
        -- In one scan of the routes that they leave.
        WITH gone AS (
            DELETE FROM lanekeeper.ready AS r WHERE r.route = ANY (v_from) AND r.lane_id = ANY (v_lanes)
            RETURNING r.priority, r.due_at, r.lane_id, r.session_id, r.session, r.day, r.progress_ctid
        )
        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, session, day, progress_ctid)
        SELECT u.route, g.priority, greatest(g.due_at, clock_timestamp()), g.lane_id, g.session_id, g.session, g.day,
               g.progress_ctid
        FROM gone AS g JOIN unnest(v_lanes, v_to) AS u (lane_id, route) ON u.lane_id = g.lane_id;
        moved := cardinality(v_lanes);
        PERFORM lanekeeper.ring();
    END IF;
END
$$;
