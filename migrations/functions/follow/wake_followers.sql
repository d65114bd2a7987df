-- Tells the workers that have live followers of a stream which of its sessions this transaction appended to, or closed.
-- Called only where the stream's row says `followed`.
--
-- A producer that gets the lock knows that no worker follows the stream any more, or none yet, and need not notify: NOTIFY
-- serialises the commits of the whole server. It keeps the lock until its transaction ends. A worker that cannot register
-- because of that scans meanwhile: see follow_stream(). Notifications are hints (I8). One names up to 300 sessions, so
-- that it stays below the 8,000 bytes that a notification may have. Equal ones of a transaction are one.
-- `SET lanekeeper.notify = off` leaves them out, as for the doorbell. A row in silent_append takes their place, so that no
-- follower's cursor passes the events: they are found when anything else of a followed stream is notified.
CREATE OR REPLACE FUNCTION lanekeeper.wake_followers(p_stream_id int, p_session_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF pg_try_advisory_xact_lock(lanekeeper.follow_lock(p_stream_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) THEN
        RETURN;
    END IF;
    IF current_setting('lanekeeper.notify', true) = 'off' THEN
        INSERT INTO lanekeeper.silent_append (session_id, stream_id)
        SELECT u.session_id, p_stream_id FROM unnest(p_session_ids) AS u (session_id)
        ON CONFLICT DO NOTHING;
    ELSE
        FOR v_first IN 1 .. cardinality(p_session_ids) BY 300 LOOP
            PERFORM pg_notify('lanekeeper_follow', p_stream_id || ' ' || array_to_string(p_session_ids[v_first : v_first + 299], ','));
        END LOOP;
    END IF;
END
$$;
