-- Deletes a stream of the Durable Streams protocol, in the caller's transaction: from its commit on there is no such stream
-- for the protocol, and its session is closed. What was appended before is delivered, and leaves the log with its days.
-- False where there is no such stream.
--
-- SQLSTATEs, each with nothing changed: LK007 and LK010 as of close_session().
-- Order: as in append_durable().
-- Index: those of close_session(), durable_stream's and durable_producer's primary keys. Rows: one, and the stream's producers,
-- which append_durable() limits.
CREATE OR REPLACE FUNCTION lanekeeper.delete_durable_stream(p_stream text, p_session text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    v_is_open    boolean;
    v_is_there   boolean;
BEGIN
    SELECT f.session_id INTO v_session_id FROM lanekeeper.lock_session(p_stream, p_session) AS f;
    SELECT lanekeeper.durable_is_there(d.deleted_at, d.expires_at, d.ttl_seconds, d.used_at) INTO v_is_there
    FROM lanekeeper.durable_stream AS d WHERE d.session_id = v_session_id;
    IF NOT v_is_there THEN
        RETURN false;
    END IF;
    SELECT s.closed_at IS NULL INTO v_is_open FROM lanekeeper.session AS s WHERE s.session_id = v_session_id;
    IF v_is_open THEN
        PERFORM lanekeeper.close_session(p_stream, p_session, 'deleted over the Durable Streams protocol', true);
    END IF;
    DELETE FROM lanekeeper.durable_producer AS p WHERE p.session_id = v_session_id;
    INSERT INTO lanekeeper.durable_stream AS d (session_id, closed_here, deleted_at)
    VALUES (v_session_id, v_is_open, clock_timestamp())
    ON CONFLICT (session_id) DO UPDATE
    SET closed_here = d.closed_here OR excluded.closed_here, deleted_at = excluded.deleted_at;
    RETURN true;
END
$$;
