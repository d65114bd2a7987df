-- Raises 40001 where another transaction has appended p_seq since the caller's snapshot (I1), closed the session, or moved a
-- lane of it to another host (I13). For
-- REPEATABLE READ and SERIALIZABLE, whose snapshot may be older than the append lock.
--
-- It inserts a row with that key and removes it again: ON CONFLICT sees rows that the snapshot does not, and Postgres
-- raises the error. An event's key includes the day, so every day that the unseen event may have is tried.
CREATE OR REPLACE FUNCTION lanekeeper.refuse_stale_snapshot(p_session_id bigint, p_seq bigint, p_newest_day date, p_today date)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_day date := p_newest_day;
BEGIN
    -- Where the close can be seen, the row stays, and the caller sees it too.
    INSERT INTO lanekeeper.closed_session AS c (session_id) VALUES (p_session_id) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        DELETE FROM lanekeeper.closed_session AS c WHERE c.session_id = p_session_id;
    END IF;
    -- The ready entries of lanes that were moved to another host since go to its route: see entry_route().
    PERFORM FROM lanekeeper.lane AS l WHERE l.session_id = p_session_id AND l.route < 0 FOR SHARE;
    IF p_seq = 1 THEN
        SELECT least((s.created_at AT TIME ZONE 'UTC')::date, p_today) INTO v_day
        FROM lanekeeper.session AS s WHERE s.session_id = p_session_id;
    END IF;
    WHILE v_day <= p_today LOOP
        IF to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NOT NULL THEN
            INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload)
            VALUES (p_session_id, p_seq, v_day, 0, 0, now(), gen_random_uuid(), 'probe', 'null')
            ON CONFLICT DO NOTHING;
            DELETE FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id AND e.seq = p_seq AND e.day = v_day;
        END IF;
        v_day := v_day + 1;
    END LOOP;
END
$$;
