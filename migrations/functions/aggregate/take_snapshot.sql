-- Keeps what a program folded the events of a session to, up to the event `seq`, for those that fold them later with the
-- same aggregate and schema version. Returns whether it is there now: a state with more bytes than the stream's
-- max_payload_bytes is not kept, and nothing is lost by that. The first one of a seq stays.
--
-- The session's snapshots of earlier schema versions go once they are 7 days old: programs of both run side by side until
-- then.
--
-- SQLSTATEs, each with nothing kept: LK003 there is no such stream, LK006 the session has no such event, or the name cannot
-- be used, LK009 the stream is other producers'.
--
-- Who may append to a stream could have its programs believe anything by events too, so a snapshot needs no other right.
-- Index: the unique names of stream and session, event's and kept_event's primary keys. Rows: one, and what goes.
CREATE OR REPLACE FUNCTION lanekeeper.take_snapshot(
    stream text, session text, aggregate text, schema_version int, seq bigint, state text
)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id  int;
    v_producers  text[];
    v_most       int;
    v_session_id bigint;
    v_day        date;
BEGIN
    SELECT t.stream_id, t.producers, t.max_payload_bytes INTO v_stream_id, v_producers, v_most
    FROM lanekeeper.stream AS t WHERE t.name = take_snapshot.stream;
    IF v_stream_id IS NULL THEN
        PERFORM lanekeeper.raise_unknown_stream(take_snapshot.stream);
    END IF;
    IF v_producers IS NOT NULL AND NOT lanekeeper.may_produce(v_producers) THEN
        PERFORM lanekeeper.raise_not_producer(take_snapshot.stream);
    END IF;
    IF (octet_length(take_snapshot.aggregate) BETWEEN 1 AND 100 AND take_snapshot.schema_version IS NOT NULL
        AND take_snapshot.state IS NOT NULL) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('the aggregate %L with schema version %s has no name, version or state that can be used: no snapshot was kept',
                             left(take_snapshot.aggregate, 200), take_snapshot.schema_version),
            HINT = 'A name has 1 to 100 bytes; version and state are not NULL.';
    END IF;
    SELECT s.session_id INTO v_session_id FROM lanekeeper.session AS s
    WHERE s.stream_id = v_stream_id AND s.name = take_snapshot.session;
    -- Mostly of a moment ago.
    SELECT e.day INTO v_day FROM lanekeeper.recent_event AS e
    WHERE e.session_id = v_session_id AND e.seq = take_snapshot.seq;
    IF v_day IS NULL THEN
        SELECT e.day INTO v_day FROM lanekeeper.event AS e
        WHERE e.session_id = v_session_id AND e.seq = take_snapshot.seq;
    END IF;
    IF v_day IS NULL AND EXISTS (
        SELECT FROM lanekeeper.kept_event AS k WHERE k.session_id = v_session_id AND k.seq = take_snapshot.seq)
    THEN
        v_day := '2000-01-01';
    END IF;
    IF v_day IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('session %L has no event with seq %s: no snapshot was kept',
                             left(take_snapshot.session, 200), take_snapshot.seq),
            HINT = 'A snapshot is of the state behind one of the session''s events.';
    END IF;
    IF octet_length(take_snapshot.state) > v_most THEN
        RETURN false;
    END IF;
    DELETE FROM lanekeeper.aggregate_snapshot AS a
    WHERE a.session_id = v_session_id AND a.aggregate = take_snapshot.aggregate
      AND a.schema_version < take_snapshot.schema_version AND a.taken_at < clock_timestamp() - interval '7 days';
    INSERT INTO lanekeeper.aggregate_snapshot AS a (session_id, aggregate, schema_version, seq, day, state)
    VALUES (v_session_id, take_snapshot.aggregate, take_snapshot.schema_version, take_snapshot.seq, v_day, take_snapshot.state)
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
