-- Takes a session's append lock until the transaction ends; returns the session. SQLSTATEs: LK007 another transaction
-- appends to it and did not end within the caller's lock_timeout, 5 s; LK010 no such session.
-- Index: the unique names of stream and session.
CREATE OR REPLACE FUNCTION lanekeeper.lock_session(IN p_stream text, IN p_session text, OUT session_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT s.session_id INTO session_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id
    WHERE t.name = p_stream AND s.name = p_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK010',
            MESSAGE = format('there is no session %L of stream %L: nothing was changed', left(p_session, 200), left(p_stream, 200)),
            HINT = 'List sessions with `lanekeeper session list`.';
    END IF;
    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(session_id));
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'LK007',
        MESSAGE = format('another transaction appends to session %L and did not end within 5 s: nothing was changed',
                         left(p_session, 200)),
        HINT = 'Try again when it has ended.';
END
$$;
