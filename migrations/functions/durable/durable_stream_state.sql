-- What the Durable Streams protocol knows of a session; session_id NULL where there is no such stream, it was deleted, or
-- it has expired. A session that the protocol did not create is a stream of JSON.
--
-- With p_use, it counts as read: one that expires when it is idle stays. Its row is written no more than ten times in its
-- time to live, however often it is read.
-- `closed` is read before `newest`: nothing comes after the newest of a closed session.
-- Index: the unique names of stream and session, durable_stream's primary key, those of newest_event(). Rows: one of each.
CREATE OR REPLACE FUNCTION lanekeeper.durable_stream_state(
    IN p_stream text, IN p_session text, IN p_use boolean,
    OUT session_id bigint, OUT content_type text, OUT first_seq bigint, OUT newest bigint, OUT closed boolean,
    OUT ttl_seconds bigint, OUT expires_at timestamptz
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_session record;
BEGIN
    SELECT s.session_id, s.closed_at, coalesce(d.content_type, 'application/json') AS content_type,
           coalesce(d.first_seq, 1) AS first_seq, d.ttl_seconds, d.expires_at, d.used_at
    INTO v_session
    FROM lanekeeper.stream AS t
    CROSS JOIN LATERAL (
        SELECT s.session_id, s.closed_at FROM lanekeeper.session AS s
        WHERE s.stream_id = t.stream_id AND s.name = p_session OFFSET 0
    ) AS s
    LEFT JOIN LATERAL (
        SELECT d.session_id, d.content_type, d.first_seq, d.ttl_seconds, d.expires_at, d.used_at, d.deleted_at
        FROM lanekeeper.durable_stream AS d WHERE d.session_id = s.session_id OFFSET 0
    ) AS d ON true
    WHERE t.name = p_stream
      AND (d.session_id IS NULL OR lanekeeper.durable_is_there(d.deleted_at, d.expires_at, d.ttl_seconds, d.used_at));
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_use AND v_session.ttl_seconds IS NOT NULL THEN
        UPDATE lanekeeper.durable_stream AS d SET used_at = clock_timestamp()
        WHERE d.session_id = v_session.session_id
          AND d.used_at + least(v_session.ttl_seconds * interval '100 ms', interval '1 hour') < clock_timestamp();
    END IF;
    session_id := v_session.session_id;
    content_type := v_session.content_type;
    first_seq := v_session.first_seq;
    closed := v_session.closed_at IS NOT NULL;
    ttl_seconds := v_session.ttl_seconds;
    expires_at := v_session.expires_at;
    SELECT greatest(n.seq, v_session.first_seq - 1) INTO newest
    FROM lanekeeper.newest_event(v_session.session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n;
END
$$;
