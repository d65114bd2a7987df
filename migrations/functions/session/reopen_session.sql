-- Has a closed session take appends again, in the caller's transaction. What expired stays expired; what comes is numbered
-- on and delivered to the session's lanes. False where the session is not closed.
--
-- SQLSTATEs, each with nothing changed: LK007 another transaction appends to the session and did not end within 5 s;
-- LK010 no such session; 40001 in REPEATABLE READ and SERIALIZABLE, where another transaction closed or reopened it after
-- the snapshot.
--
-- Under the append lock, as close_session(). lanes_version stays as it is: the next append adds the lanes that the session
-- lacks and writes it.
-- Index: session's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.reopen_session(stream text, session text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
BEGIN
    SELECT f.session_id INTO v_session_id FROM lanekeeper.lock_session(reopen_session.stream, reopen_session.session) AS f;
    UPDATE lanekeeper.session AS s
    SET closed_at = NULL, closed_seq = NULL, close_reason = NULL, draining = false
    WHERE s.session_id = v_session_id AND s.closed_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM lanekeeper.closed_session AS c WHERE c.session_id = v_session_id;
    INSERT INTO lanekeeper.operation (action, session_id) VALUES ('reopen', v_session_id);
    PERFORM lanekeeper.publish_session(reopen_session.stream, reopen_session.session, 'session_reopened', '{}');
    RETURN true;
END
$$;
