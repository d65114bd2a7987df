-- Creates a stream of the Durable Streams protocol, which is a session, with what it begins with, in the caller's
-- transaction. `outcome`: `created`; `there` where it is there as asked for, and nothing is done; `conflict` where it is
-- there and is not. p_events is an array as enqueue_many() takes it, all of this session, or NULL.
--
-- A name may be used again when its stream was deleted or has expired: the session goes on behind its last seq, reads
-- begin there, and its producers are forgotten. It is opened again where the protocol closed it; a session that an operator
-- closed stays closed, and is a conflict.
--
-- SQLSTATEs, each with nothing changed: those of enqueue() and close_session().
-- Order: the session's append lock is taken first and serialises all changes of the stream's row but those of its `used_at`.
-- Index: those of open_session() and enqueue_many(), durable_stream's and durable_producer's primary keys. Rows: one, and the
-- stream's producers, which append_durable() limits.
CREATE OR REPLACE FUNCTION lanekeeper.create_durable_stream(
    IN p_stream text, IN p_session text, IN p_content_type text, IN p_ttl_seconds bigint, IN p_expires_at timestamptz,
    IN p_closed boolean, IN p_events jsonb,
    OUT outcome text, OUT newest bigint, OUT closed boolean, OUT content_type text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    v_was_there  boolean;
    v_is_known   boolean;
    v_config     record;
BEGIN
    PERFORM lanekeeper.check_event(p_stream, p_session, 'message', 'null', NULL, 0::smallint, '{}', 0);
    v_was_there := EXISTS (
        SELECT FROM lanekeeper.stream AS t JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id
        WHERE t.name = p_stream AND s.name = p_session);
    SELECT o.session_id INTO v_session_id FROM lanekeeper.open_session(p_stream, p_session) AS o;
    -- In statements of their own, after the lock.
    SELECT n.seq INTO newest
    FROM lanekeeper.newest_event(v_session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n;
    SELECT s.closed_at IS NOT NULL INTO closed FROM lanekeeper.session AS s WHERE s.session_id = v_session_id;
    SELECT d.content_type, d.ttl_seconds, d.expires_at, d.closed_here, d.deleted_at, d.used_at INTO v_config
    FROM lanekeeper.durable_stream AS d WHERE d.session_id = v_session_id;
    v_is_known := FOUND;
    IF NOT v_is_known AND (v_was_there OR newest > 0 OR closed) THEN
        -- It came by another way.
        v_is_known := true;
        SELECT 'application/json' AS content_type, NULL::bigint AS ttl_seconds, NULL::timestamptz AS expires_at,
               false AS closed_here, NULL::timestamptz AS deleted_at, clock_timestamp() AS used_at INTO v_config;
    END IF;
    IF v_is_known AND lanekeeper.durable_is_there(
        v_config.deleted_at, v_config.expires_at, v_config.ttl_seconds, v_config.used_at) THEN
        content_type := v_config.content_type;
        outcome := CASE WHEN lanekeeper.media_type(v_config.content_type) = lanekeeper.media_type(p_content_type)
                             AND v_config.ttl_seconds IS NOT DISTINCT FROM p_ttl_seconds
                             AND v_config.expires_at IS NOT DISTINCT FROM p_expires_at
                             AND closed = p_closed THEN 'there' ELSE 'conflict' END;
        RETURN;
    END IF;
    content_type := p_content_type;
    IF closed THEN
        IF v_config.closed_here IS NOT TRUE THEN
            outcome := 'conflict';
            RETURN;
        END IF;
        PERFORM lanekeeper.reopen_session(p_stream, p_session);
        closed := false;
    END IF;
    DELETE FROM lanekeeper.durable_producer AS p WHERE p.session_id = v_session_id;
    INSERT INTO lanekeeper.durable_stream AS d (session_id, content_type, first_seq, ttl_seconds, expires_at, closed_here)
    VALUES (v_session_id, p_content_type, newest + 1, p_ttl_seconds, p_expires_at, p_closed)
    ON CONFLICT (session_id) DO UPDATE
    SET content_type = excluded.content_type, first_seq = excluded.first_seq, ttl_seconds = excluded.ttl_seconds,
        expires_at = excluded.expires_at, used_at = excluded.used_at, writer_seq = NULL,
        closed_here = excluded.closed_here, closed_by = NULL, closed_epoch = NULL, closed_seq = NULL, deleted_at = NULL;
    IF p_events IS NOT NULL THEN
        SELECT coalesce(max(e.seq), newest) INTO newest FROM lanekeeper.enqueue_many(p_stream, p_events) AS e;
        -- A terminal event closes it.
        SELECT s.closed_at IS NOT NULL INTO closed FROM lanekeeper.session AS s WHERE s.session_id = v_session_id;
        UPDATE lanekeeper.durable_stream AS d SET closed_here = true
        WHERE d.session_id = v_session_id AND closed AND NOT d.closed_here;
    END IF;
    IF p_closed THEN
        PERFORM lanekeeper.close_session(p_stream, p_session, NULL, true);
        closed := true;
    END IF;
    outcome := 'created';
END
$$;
