-- Appends one event, as enqueue() does, if its seq is the one that the caller expects: the session's newest is the seq before
-- it. For a caller that keeps its own count, and must not append behind what it has not seen.
--
-- Promise: the event has exactly this seq, or nothing is written and LK012 is raised, whose DETAIL is the seq that there is
-- as JSON: the newest of the session, or that of the event that was appended with this key or id before. A call that is
-- repeated with its key or id finds its own event at its seq, and is a duplicate. LK006 where p_expected_seq is no seq;
-- other SQLSTATEs, each with nothing written, are those of enqueue().
--
-- It appends first and compares then, so the order (I1), the ready entries (I13) and the cost are those of enqueue(), which
-- does not know of it. Raising undoes the append with the caller's transaction, or up to its savepoint.
CREATE OR REPLACE FUNCTION lanekeeper.enqueue_at(
    IN stream text,
    IN session text,
    IN expected_seq bigint,
    IN event_type text,
    IN payload jsonb,
    INOUT message_id uuid DEFAULT NULL,
    IN dedupe_key text DEFAULT NULL,
    IN priority smallint DEFAULT 0,
    IN headers jsonb DEFAULT '{}',
    OUT seq bigint,
    OUT duplicate boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF (enqueue_at.expected_seq > 0) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'expected_seq must be 1 or more: nothing was enqueued',
            HINT = 'It is the seq that the event is to have: the newest seq of the session plus one.';
    END IF;
    SELECT e.message_id, e.seq, e.duplicate INTO message_id, seq, duplicate
    FROM lanekeeper.enqueue(
        enqueue_at.stream, enqueue_at.session, enqueue_at.event_type, enqueue_at.payload, enqueue_at.message_id,
        enqueue_at.dedupe_key, enqueue_at.priority, enqueue_at.headers) AS e;
    IF seq <> enqueue_at.expected_seq THEN
        RAISE EXCEPTION USING ERRCODE = 'LK012',
            MESSAGE = CASE
                WHEN duplicate THEN format('this key or id is that of seq %s of session %L, and seq %s was expected: nothing was enqueued',
                                           seq, left(enqueue_at.session, 200), enqueue_at.expected_seq)
                ELSE format('session %L is at seq %s, and seq %s was expected next: nothing was enqueued',
                            left(enqueue_at.session, 200), seq - 1, enqueue_at.expected_seq) END,
            DETAIL = format('{"seq": %s}', CASE WHEN duplicate THEN seq ELSE seq - 1 END),
            HINT = 'Read what was appended meanwhile, and decide anew.';
    END IF;
END
$$;
