-- Copies the events of a day of streams with `keep_events` to `kept_event`, those that are not there yet: up to p_limit, in
-- the order of their sessions and seqs. Returns how many. 0: all of them are there.
--
-- So what is kept of a session is without gaps up to where it ends, and the log goes on behind it. The caller has locked the
-- day against writers, and drops it only when every snapshot sees the copies.
-- Index: reads the whole day where there is such a stream; kept_event's primary key. Rows: at most p_limit.
CREATE OR REPLACE FUNCTION lanekeeper.keep_events(p_day date, p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM lanekeeper.stream AS t WHERE t.keep_events) THEN
        RETURN 0;
    END IF;
    EXECUTE format($query$
        INSERT INTO lanekeeper.kept_event (session_id, seq, created_at, message_id, event_type, payload, headers)
        SELECT e.session_id, e.seq, e.created_at, e.message_id, e.event_type, e.payload, e.headers
        FROM lanekeeper.%I AS e
        JOIN lanekeeper.session AS s ON s.session_id = e.session_id
        JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id AND t.keep_events
        WHERE NOT EXISTS (
            SELECT FROM lanekeeper.kept_event AS k WHERE k.session_id = e.session_id AND k.seq = e.seq)
        ORDER BY e.session_id, e.seq LIMIT %s
        ON CONFLICT DO NOTHING
        $query$, 'event_' || to_char(p_day, 'YYYYMMDD'), p_limit);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
