-- Remembers what a producer chose by name: a dedupe key, a message id, or both. NULLs where they are new; otherwise the
-- message id and seq of the producer's first call. Another producer's keys are others, so nobody can use up a key of
-- theirs. Waits for another transaction that is inserting the same key.
--
-- A call may come over two ways: `hook` sends it as one role, is killed, and a worker sends it again from the spool as
-- another. So an event with the same message id, type and payload in the same session is the same event, whoever the
-- producer was. With another payload it is not: nobody can keep another's event out of the log.
--
-- Raises 40001 where maintenance forgot the key in this moment: nothing is enqueued.
-- Index: dedupe's primary key. Rows: two, and one for each producer that used the same message id.
CREATE OR REPLACE FUNCTION lanekeeper.remember_keys(
    IN p_stream text, IN p_session_id bigint, IN p_message_id uuid, IN p_given_id uuid, IN p_dedupe_key text, IN p_seq bigint,
    IN p_event_type text, IN p_payload text,
    OUT message_id uuid, OUT seq bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id int;
    v_producer  text := lanekeeper.producer();
    v_inserted  int;
BEGIN
    SELECT t.stream_id INTO v_stream_id FROM lanekeeper.stream AS t WHERE t.name = p_stream;
    INSERT INTO lanekeeper.dedupe (stream_id, producer, key, session_id, seq, message_id)
    SELECT v_stream_id, v_producer, k.key, p_session_id, p_seq, p_message_id
    FROM (VALUES ('id:' || p_given_id::text), ('key:' || p_dedupe_key)) AS k (key)
    WHERE k.key IS NOT NULL
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
    IF v_inserted = num_nonnulls(p_given_id, p_dedupe_key) AND p_given_id IS NOT NULL AND EXISTS (
        SELECT FROM lanekeeper.dedupe AS d
        WHERE d.stream_id = v_stream_id AND d.key = 'id:' || p_given_id::text AND d.producer <> v_producer
          AND d.session_id = p_session_id)
    THEN
        SELECT e.message_id, e.seq INTO message_id, seq
        FROM lanekeeper.dedupe AS d
        JOIN lanekeeper.event AS e ON e.session_id = d.session_id AND e.seq = d.seq
        WHERE d.stream_id = v_stream_id AND d.key = 'id:' || p_given_id::text AND d.producer <> v_producer
          AND d.session_id = p_session_id AND e.event_type = p_event_type AND e.payload = p_payload
        ORDER BY e.seq LIMIT 1;
    END IF;
    IF v_inserted < num_nonnulls(p_given_id, p_dedupe_key) OR seq IS NOT NULL THEN
        DELETE FROM lanekeeper.dedupe AS d
        WHERE d.stream_id = v_stream_id AND d.producer = v_producer AND d.session_id = p_session_id AND d.seq = p_seq
          AND d.key IN ('id:' || p_given_id::text, 'key:' || p_dedupe_key);
    END IF;
    IF v_inserted < num_nonnulls(p_given_id, p_dedupe_key) THEN
        SELECT d.message_id, d.seq INTO message_id, seq
        FROM lanekeeper.dedupe AS d
        WHERE d.stream_id = v_stream_id AND d.producer = v_producer AND d.key IN ('id:' || p_given_id::text, 'key:' || p_dedupe_key)
        ORDER BY d.key LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = 'the key was forgotten at this moment: nothing was enqueued, try again';
        END IF;
    END IF;
END
$$;
