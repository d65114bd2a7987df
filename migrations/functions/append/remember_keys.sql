-- Remembers what a producer chose by name: a dedupe key, a message id, or both. NULLs where they are new; otherwise the
-- message id and seq of the producer's first call. Another producer's keys are others, so nobody can use up a key of
-- theirs. Waits for another transaction that is inserting the same key.
--
-- Random message ids (UUID versions 4 and 7) count for all producers of the stream: nobody can guess one before it is used,
-- and the same event may come over two ways. `hook` sends it as one role, is killed, and a worker sends it again from the
-- spool as another.
--
-- Raises 40001 where maintenance forgot the key in this moment: nothing is enqueued.
-- Index: dedupe's primary key. Rows: two.
CREATE OR REPLACE FUNCTION lanekeeper.remember_keys(
    IN p_stream text, IN p_session_id bigint, IN p_message_id uuid, IN p_given_id uuid, IN p_dedupe_key text, IN p_seq bigint,
    OUT message_id uuid, OUT seq bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id int;
    v_producer  text := lanekeeper.producer();
    -- Whose the message id is: the empty name is everybody's.
    v_id_owner  text := CASE WHEN substr(p_given_id::text, 15, 1) IN ('4', '7') THEN '' ELSE v_producer END;
    v_inserted  int;
BEGIN
    SELECT t.stream_id INTO v_stream_id FROM lanekeeper.stream AS t WHERE t.name = p_stream;
    INSERT INTO lanekeeper.dedupe (stream_id, producer, key, session_id, seq, message_id)
    SELECT v_stream_id, k.producer, k.key, p_session_id, p_seq, p_message_id
    FROM (VALUES (v_id_owner, 'id:' || p_given_id::text), (v_producer, 'key:' || p_dedupe_key)) AS k (producer, key)
    WHERE k.key IS NOT NULL
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
    IF v_inserted < num_nonnulls(p_given_id, p_dedupe_key) THEN
        DELETE FROM lanekeeper.dedupe AS d
        USING (VALUES (v_id_owner, 'id:' || p_given_id::text), (v_producer, 'key:' || p_dedupe_key)) AS k (producer, key)
        WHERE d.stream_id = v_stream_id AND d.producer = k.producer AND d.key = k.key
          AND d.session_id = p_session_id AND d.seq = p_seq;
        SELECT d.message_id, d.seq INTO message_id, seq
        FROM (VALUES (v_id_owner, 'id:' || p_given_id::text), (v_producer, 'key:' || p_dedupe_key)) AS k (producer, key)
        JOIN lanekeeper.dedupe AS d ON d.stream_id = v_stream_id AND d.producer = k.producer AND d.key = k.key
        ORDER BY d.key LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = 'the key was forgotten at this moment: nothing was enqueued, try again';
        END IF;
    END IF;
END
$$;
