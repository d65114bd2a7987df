-- Finds an event by its message id; no row where it is not found. In this order: as what a producer called it; as what was
-- sent to a subscription that requires acknowledgements; of one session, where it is named, in the days that the id allows.
-- Else, where the id has a time, as generated ones have (UUIDv7), it reads that day of the log and the next: seconds, for
-- millions of events. The log has no index by message id, which each append would pay for.
-- Index: dedupe's primary key, sent's, event's; where only the id is known and nobody chose it, none. Rows: as it says.
CREATE OR REPLACE FUNCTION lanekeeper.find_message(
    IN p_message_id uuid, IN p_stream text, IN p_session text,
    OUT session_id bigint, OUT seq bigint, OUT day date
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_session_id bigint;
    v_first_day  date;
BEGIN
    SELECT s.session_id INTO v_session_id
    FROM lanekeeper.stream AS t JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id
    WHERE t.name = p_stream AND s.name = p_session;
    SELECT k.session_id, k.seq INTO session_id, seq
    FROM (
        SELECT d.session_id, d.seq FROM lanekeeper.stream AS t
        CROSS JOIN LATERAL (
            SELECT d.session_id, d.seq FROM lanekeeper.dedupe AS d
            WHERE d.stream_id = t.stream_id AND d.producer IN ('', lanekeeper.producer())
              AND d.key = 'id:' || p_message_id::text AND d.message_id = p_message_id OFFSET 0
        ) AS d
        WHERE t.name = coalesce(p_stream, t.name)
        UNION ALL
        SELECT l.session_id, x.seq FROM lanekeeper.sent AS x JOIN lanekeeper.lane AS l ON l.lane_id = x.lane_id
        WHERE x.message_id = p_message_id
    ) AS k
    WHERE p_session IS NULL OR k.session_id = v_session_id
    LIMIT 1;
    IF seq IS NOT NULL THEN
        SELECT e.day INTO day FROM lanekeeper.event AS e WHERE e.session_id = find_message.session_id AND e.seq = find_message.seq;
        IF day IS NULL THEN
            seq := NULL;
        END IF;
        RETURN;
    END IF;
    IF substr(p_message_id::text, 15, 1) <> '7' OR p_session IS NOT NULL AND v_session_id IS NULL THEN
        RETURN;
    END IF;
    v_first_day := (to_timestamp(('x' || substr(replace(p_message_id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
                    AT TIME ZONE 'UTC')::date;
    IF v_session_id IS NOT NULL THEN
        SELECT e.session_id, e.seq, e.day INTO session_id, seq, day FROM lanekeeper.event AS e
        WHERE e.session_id = v_session_id AND e.day BETWEEN v_first_day AND v_first_day + 1 AND e.message_id = p_message_id
        LIMIT 1;
    ELSE
        SELECT e.session_id, e.seq, e.day INTO session_id, seq, day FROM lanekeeper.event AS e
        WHERE e.day BETWEEN v_first_day AND v_first_day + 1 AND e.message_id = p_message_id
        LIMIT 1;
    END IF;
END
$$;
