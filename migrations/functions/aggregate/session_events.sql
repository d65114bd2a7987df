-- A page of the events of a session, in the order of their seqs, from `after_seq` on and without it, up to `up_to_seq`:
-- those of the log, and those that were kept when their day left it. At most `max_rows` (1 to 1,000), and no more than the
-- first whose payloads reach 4 MiB together. A page without rows is the end of what there is.
--
-- `from_day` saves time: no event behind `after_seq` is in an earlier day.
--
-- SQLSTATEs: LK003 there is no such stream, LK006 for another number of rows.
--
-- Kept events are the session's first ones, without gaps (keep_events), so the log goes on behind the last of them.
-- Index: the unique names of stream and session, kept_event's and event's primary keys; earlier days are pruned.
-- Rows: as asked for.
CREATE OR REPLACE FUNCTION lanekeeper.session_events(
    stream text, session text, after_seq bigint DEFAULT 0, up_to_seq bigint DEFAULT NULL, max_rows int DEFAULT 100,
    from_day date DEFAULT NULL
)
RETURNS TABLE (seq bigint, event_type text, payload text, message_id uuid, created_at timestamptz, headers jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    v_after      bigint := coalesce(session_events.after_seq, 0);
    v_last       bigint := coalesce(session_events.up_to_seq, 9223372036854775807);
    v_kept       bigint;
    v_day        date := coalesce(session_events.from_day, '2000-01-01');
    v_rows       int := coalesce(session_events.max_rows, 100);
BEGIN
    IF v_rows NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'a page has 1 to 1000 rows';
    END IF;
    IF NOT EXISTS (SELECT FROM lanekeeper.stream AS t WHERE t.name = session_events.stream) THEN
        PERFORM lanekeeper.raise_unknown_stream(session_events.stream);
    END IF;
    SELECT s.session_id INTO v_session_id
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id AND s.name = session_events.session
    WHERE t.name = session_events.stream;
    SELECT k.seq INTO v_kept FROM lanekeeper.kept_event AS k
    WHERE k.session_id = v_session_id ORDER BY k.seq DESC LIMIT 1;
    RETURN QUERY
    SELECT b.seq, b.event_type, b.payload, b.message_id, b.created_at, b.headers
    FROM (
        SELECT a.*, sum(octet_length(a.payload)) OVER (ORDER BY a.seq) - octet_length(a.payload) AS bytes_before
        FROM (
            (SELECT k.seq, k.event_type, k.payload, k.message_id, k.created_at, k.headers
             FROM lanekeeper.kept_event AS k
             WHERE k.session_id = v_session_id AND k.seq > v_after AND k.seq <= v_last
             ORDER BY k.seq LIMIT v_rows)
            UNION ALL
            (SELECT e.seq, e.event_type, e.payload, e.message_id, e.created_at, e.headers
             FROM lanekeeper.event AS e
             WHERE e.session_id = v_session_id AND e.seq > greatest(v_after, coalesce(v_kept, 0)) AND e.seq <= v_last
               AND e.day >= v_day
             ORDER BY e.seq LIMIT v_rows)
            ORDER BY seq LIMIT v_rows
        ) AS a
    ) AS b
    WHERE b.bytes_before < 4194304
    ORDER BY b.seq;
END
$$;
