-- For operators: says on which host a session lives, so that lanes of host-bound subscriptions are delivered by the workers
-- with that `worker.host_label` and by no others. NULL: the host that the agent registry has, if any. The session need not
-- exist yet. Returns whether anything changed. Workers move the lanes soon after the commit; one that is being delivered
-- is moved when its holder lets it go.
--
-- SQLSTATEs, each with nothing changed: LK003 unknown stream; LK006 invalid argument.
-- Index: session_host's primary key; session's unique name. Rows: one of each.
CREATE OR REPLACE FUNCTION lanekeeper.bind_session(stream text, session text, host text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id int;
BEGIN
    IF (octet_length(bind_session.session) BETWEEN 1 AND 512) IS NOT TRUE
       OR NOT lanekeeper.is_host_label(bind_session.host) THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'a session takes 1 to 512 bytes, and a host label 1 to 255 without spaces and slashes: nothing was changed';
    END IF;
    SELECT t.stream_id INTO v_stream_id FROM lanekeeper.stream AS t WHERE t.name = bind_session.stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(bind_session.stream);
    END IF;
    IF bind_session.host IS NULL THEN
        DELETE FROM lanekeeper.session_host AS b WHERE b.stream_id = v_stream_id AND b.session = bind_session.session;
    ELSE
        INSERT INTO lanekeeper.session_host AS b (stream_id, session, host)
        VALUES (v_stream_id, bind_session.session, bind_session.host)
        ON CONFLICT (stream_id, session) DO UPDATE SET host = excluded.host, bound_at = excluded.bound_at
        WHERE b.host <> excluded.host;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO lanekeeper.operation (action, session_id, reason)
    VALUES (CASE WHEN bind_session.host IS NULL THEN 'unbind' ELSE 'bind' END,
            (SELECT s.session_id FROM lanekeeper.session AS s
             WHERE s.stream_id = v_stream_id AND s.name = bind_session.session),
            bind_session.host);
    PERFORM lanekeeper.host_may_differ(bind_session.session);
    RETURN true;
END
$$;
