-- Where the fold of a session's events up to `at_seq` begins (NULL: up to the newest): the newest snapshot of this
-- aggregate and schema version that is not behind it, as seq, day and state, NULLs where there is none; and the seq of the
-- session's newest event, 0 where it has none yet.
--
-- SQLSTATE: LK003 there is no such stream.
--
-- Index: the unique names of stream and session, aggregate_snapshot's primary key; see newest_event(). Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.find_snapshot(
    IN stream text, IN session text, IN aggregate text, IN schema_version int, IN at_seq bigint DEFAULT NULL,
    OUT newest_seq bigint, OUT seq bigint, OUT day date, OUT state text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id  int;
    v_session_id bigint;
BEGIN
    SELECT t.stream_id INTO v_stream_id FROM lanekeeper.stream AS t WHERE t.name = find_snapshot.stream;
    IF v_stream_id IS NULL THEN
        PERFORM lanekeeper.raise_unknown_stream(find_snapshot.stream);
    END IF;
    newest_seq := 0;
    SELECT s.session_id INTO v_session_id FROM lanekeeper.session AS s
    WHERE s.stream_id = v_stream_id AND s.name = find_snapshot.session;
    IF v_session_id IS NULL THEN
        RETURN;
    END IF;
    SELECT n.seq INTO newest_seq
    FROM lanekeeper.newest_event(v_session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n;
    SELECT a.seq, a.day, a.state INTO seq, day, state
    FROM lanekeeper.aggregate_snapshot AS a
    WHERE a.session_id = v_session_id AND a.aggregate = find_snapshot.aggregate
      AND a.schema_version = find_snapshot.schema_version
      AND a.seq <= coalesce(find_snapshot.at_seq, 9223372036854775807)
    ORDER BY a.seq DESC LIMIT 1;
END
$$;
