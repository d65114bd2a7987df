-- Ends what close_session() and interrupt() left: passes what lanes had not settled that were held then, and ends drained
-- sessions. Of one session, or of all; of one lane, for the caller that holds it and delivers nothing of it. Returns how many
-- lanes it passed events of, how many sessions had drained, and how many are still to be looked at again.
--
-- Workers call it when they hear of a close or an interrupt, before they cancel the delivery that is under way, and again at
-- the poll floor. Its transaction is short: a holder that settles meanwhile waits for it, finds another version, and settles
-- nothing (I5). Where the session was reopened since, only what was there at the close expires. Each lane gets a ready
-- entry, since its holder gives it back by one that may be due much later (I13).
--
-- Where the delivery under way is to end by itself (`cuts` is false), a lane that somebody holds waits for the next call, or
-- for its holder's.
--
-- A lane whose progress somebody else keeps locked, such as an operator's open transaction, waits for the next call. Over
-- all sessions one process is at it at a time; it also forgets what was finished a minute ago. It looks at 200 draining
-- sessions, and the next call at the next ones: there may be many, as where runs end while their destination is away.
-- Index: closing_lane_by_session, closing_lane_unfinished, closing_lane_by_age, session_draining, and those of expire_lane()
-- and lane_head(). Rows: those of the lanes concerned; of draining sessions 200.
CREATE OR REPLACE FUNCTION lanekeeper.finish_closing(
    IN p_session_id bigint DEFAULT NULL, IN p_lane_id bigint DEFAULT NULL,
    OUT lanes bigint, OUT drained bigint, OUT unfinished bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
DECLARE
    v_lane    record;
    v_session record;
    v_from    bigint;
    v_scanned int := 0;
    v_last    bigint := 0;
BEGIN
    lanes := 0; drained := 0; unfinished := 0;
    -- The holder of a lane waits for no other process and is told the truth about its lane.
    IF p_session_id IS NULL AND p_lane_id IS NULL AND NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(6)) THEN
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT c.lane_id, c.session_id, c.seq, c.day, c.kind, c.cuts, c.reason FROM lanekeeper.closing_lane AS c
        WHERE c.finished_at IS NULL AND (p_session_id IS NULL OR c.session_id = p_session_id)
          AND (p_lane_id IS NULL OR c.lane_id = p_lane_id)
        ORDER BY c.lane_id, c.seq
    LOOP
        IF NOT v_lane.cuts AND p_lane_id IS NULL AND NOT pg_try_advisory_xact_lock(lanekeeper.lane_lock(v_lane.lane_id)) THEN
            unfinished := unfinished + 1;
            CONTINUE;
        END IF;
        BEGIN
            -- Of several callers the first does it; the others wait, so that they know that it is done.
            UPDATE lanekeeper.closing_lane AS c SET finished_at = clock_timestamp()
            WHERE c.lane_id = v_lane.lane_id AND c.seq = v_lane.seq AND c.kind = v_lane.kind AND c.finished_at IS NULL;
            IF FOUND THEN
                PERFORM lanekeeper.expire_lane(
                    v_lane.lane_id, v_lane.session_id, v_lane.seq, v_lane.day, v_lane.reason, v_lane.kind);
                INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
                SELECT lanekeeper.entry_route(l.lane_id, l.route), 0, clock_timestamp(), l.lane_id
                FROM lanekeeper.lane AS l WHERE l.lane_id = v_lane.lane_id;
                lanes := lanes + 1;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            unfinished := unfinished + 1;
        END;
    END LOOP;
    IF p_session_id IS NULL AND p_lane_id IS NULL THEN
        DELETE FROM lanekeeper.closing_lane AS c WHERE c.finished_at < clock_timestamp() - interval '1 minute';
    END IF;

    IF p_session_id IS NULL AND p_lane_id IS NULL THEN
        SELECT r.scanned_to INTO v_from FROM lanekeeper.draining_round AS r;
    END IF;
    FOR v_session IN
        SELECT s.session_id, s.name, t.name AS stream, s.closed_seq, s.close_reason
        FROM (
            SELECT s.session_id FROM lanekeeper.session AS s
            WHERE s.draining AND p_lane_id IS NULL AND s.session_id = p_session_id
            UNION ALL
            (SELECT s.session_id FROM lanekeeper.session AS s
             WHERE s.draining AND s.session_id > v_from
             ORDER BY s.session_id LIMIT 200)
        ) AS d
        JOIN lanekeeper.session AS s ON s.session_id = d.session_id
        JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
        ORDER BY s.session_id
    LOOP
        v_scanned := v_scanned + 1;
        v_last := v_session.session_id;
        IF pg_try_advisory_xact_lock(lanekeeper.append_lock(v_session.session_id)) AND NOT EXISTS (
            SELECT FROM lanekeeper.lane AS l
            JOIN lanekeeper.subscription AS n ON n.subscription_id = l.subscription_id AND n.removed_at IS NULL
            CROSS JOIN LATERAL (
                SELECT p.cursor, p.cursor_day, p.requeued_after FROM lanekeeper.progress AS p
                WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
            ) AS p
            WHERE l.session_id = v_session.session_id
              AND (p.requeued_after IS NOT NULL
                   OR lanekeeper.lane_head(l.session_id, p.cursor, p.cursor_day, n.events) IS NOT NULL))
        THEN
            UPDATE lanekeeper.session AS s SET draining = false WHERE s.session_id = v_session.session_id AND s.draining;
            IF FOUND THEN
                PERFORM lanekeeper.publish_session(
                    v_session.stream, v_session.name, 'session_closed',
                    jsonb_build_object('closed_seq', v_session.closed_seq, 'reason', v_session.close_reason,
                                       'expired', 0, 'lanes', '[]'::jsonb));
                drained := drained + 1;
                CONTINUE;
            END IF;
        END IF;
        unfinished := unfinished + 1;
    END LOOP;
    -- Behind the last one it begins anew.
    UPDATE lanekeeper.draining_round AS r SET scanned_to = CASE WHEN v_scanned = 200 THEN v_last ELSE 0 END
    WHERE v_from IS NOT NULL AND r.scanned_to <> CASE WHEN v_scanned = 200 THEN v_last ELSE 0 END;
    IF lanes > 0 THEN
        PERFORM lanekeeper.ring();
    END IF;
END
$$;
