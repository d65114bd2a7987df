-- Appends what one request of the Durable Streams protocol sent, or closes the stream, or both, in the caller's
-- transaction. p_events is an array as enqueue_many() takes it, all of this session; NULL: only p_close is asked for.
--
-- `outcome`, of which only `done` changes anything:
-- - `done`: appended and closed as asked for;
-- - `duplicate`: the producer sent it before, by its epoch and seq;
-- - `missing`: the stream was deleted or has expired;
-- - `closed`, `content_type`: the stream is closed, or is of another content type;
-- - `stale_epoch`, `new_epoch`, `gap`: the producer's epoch is older than the one that there is; it is new and does not begin
--   with seq 0; its seq is not the next one. `epoch` and `seq` are where the producer stands.
-- - `writer_seq`: Stream-Seq is not above the last one.
--
-- SQLSTATEs, each with nothing changed: LK009 a stream of other producers, whom nothing else is told; LK010 no such session;
-- those of enqueue() and close_session().
--
-- What a producer sent and where it stands are written in one transaction, so a retry after a crash at any line is either the
-- first or a duplicate. Order: the session's append lock is taken first and serialises all requests of the stream.
-- A stream knows the 1,000 producers that wrote last; of one more the one that is idle for the longest time is forgotten,
-- and begins anew.
-- Index: those of enqueue_many(), durable_stream's and durable_producer's primary keys. Rows: one of each; a new producer's
-- request reads all of its stream.
CREATE OR REPLACE FUNCTION lanekeeper.append_durable(
    IN p_stream text, IN p_session text, IN p_content_type text, IN p_events jsonb, IN p_writer_seq text,
    IN p_producer_id text, IN p_epoch bigint, IN p_seq bigint, IN p_close boolean,
    OUT outcome text, OUT newest bigint, OUT closed boolean, OUT epoch bigint, OUT seq bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    v_stream     record;
    v_is_row     boolean;
    -- The stream of Lanekeeper has terminal event types: what is appended may close the session.
    v_may_end    boolean;
BEGIN
    -- A request that only closes appends nothing that would be refused.
    IF EXISTS (SELECT FROM lanekeeper.stream AS t
               WHERE t.name = p_stream AND t.producers IS NOT NULL AND NOT lanekeeper.may_produce(t.producers)) THEN
        PERFORM lanekeeper.raise_not_producer(p_stream);
    END IF;
    SELECT f.session_id INTO v_session_id FROM lanekeeper.lock_session(p_stream, p_session) AS f;
    -- In statements of their own, after the lock.
    SELECT d.content_type, d.ttl_seconds, d.expires_at, d.used_at, d.writer_seq, d.closed_by, d.closed_epoch, d.closed_seq,
           d.deleted_at
    INTO v_stream FROM lanekeeper.durable_stream AS d WHERE d.session_id = v_session_id;
    v_is_row := FOUND;
    IF v_is_row AND NOT lanekeeper.durable_is_there(
        v_stream.deleted_at, v_stream.expires_at, v_stream.ttl_seconds, v_stream.used_at) THEN
        outcome := 'missing';
        RETURN;
    END IF;
    SELECT s.closed_at IS NOT NULL, t.terminal IS NOT NULL INTO closed, v_may_end
    FROM lanekeeper.session AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.session_id = v_session_id;
    SELECT n.seq INTO newest
    FROM lanekeeper.newest_event(v_session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS n;
    SELECT p.epoch, p.seq INTO epoch, seq
    FROM lanekeeper.durable_producer AS p WHERE p.session_id = v_session_id AND p.producer_id = p_producer_id;

    IF closed THEN
        outcome := CASE
            WHEN p_producer_id = v_stream.closed_by AND p_epoch = v_stream.closed_epoch AND p_seq = v_stream.closed_seq
                THEN 'duplicate'
            WHEN p_events IS NULL AND p_producer_id IS NULL THEN 'done'
            ELSE 'closed' END;
        RETURN;
    END IF;
    IF p_events IS NOT NULL
       AND lanekeeper.media_type(p_content_type) <> lanekeeper.media_type(coalesce(v_stream.content_type, 'application/json')) THEN
        outcome := 'content_type';
        RETURN;
    END IF;
    IF p_producer_id IS NOT NULL THEN
        outcome := CASE
            WHEN epoch IS NULL AND p_seq > 0 THEN 'gap'
            WHEN p_epoch < epoch THEN 'stale_epoch'
            WHEN p_epoch > epoch AND p_seq > 0 THEN 'new_epoch'
            WHEN p_epoch = epoch AND p_seq <= seq THEN 'duplicate'
            WHEN p_epoch = epoch AND p_seq > seq + 1 THEN 'gap' END;
        IF outcome IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    IF p_writer_seq COLLATE "C" <= v_stream.writer_seq THEN
        outcome := 'writer_seq';
        RETURN;
    END IF;

    IF p_events IS NOT NULL THEN
        SELECT coalesce(max(e.seq), newest) INTO newest FROM lanekeeper.enqueue_many(p_stream, p_events) AS e;
        -- As if the request had asked for it, so that its retry is no conflict.
        p_close := p_close OR v_may_end AND EXISTS (
            SELECT FROM lanekeeper.session AS s WHERE s.session_id = v_session_id AND s.closed_at IS NOT NULL);
    END IF;
    IF p_producer_id IS NOT NULL THEN
        IF epoch IS NULL THEN
            DELETE FROM lanekeeper.durable_producer AS p
            USING (
                SELECT x.producer_id FROM lanekeeper.durable_producer AS x WHERE x.session_id = v_session_id
                ORDER BY x.used_at DESC OFFSET 999
            ) AS x
            WHERE p.session_id = v_session_id AND p.producer_id = x.producer_id;
        END IF;
        INSERT INTO lanekeeper.durable_producer AS p (session_id, producer_id, epoch, seq, used_at)
        VALUES (v_session_id, p_producer_id, p_epoch, p_seq, clock_timestamp())
        ON CONFLICT (session_id, producer_id) DO UPDATE
        SET epoch = excluded.epoch, seq = excluded.seq, used_at = excluded.used_at;
        epoch := p_epoch;
        seq := p_seq;
    END IF;
    IF p_close THEN
        PERFORM lanekeeper.close_session(p_stream, p_session, NULL, true);
        closed := true;
    END IF;
    IF p_close OR p_writer_seq IS NOT NULL OR v_stream.ttl_seconds IS NOT NULL THEN
        IF NOT v_is_row THEN
            INSERT INTO lanekeeper.durable_stream AS d (session_id) VALUES (v_session_id);
        END IF;
        UPDATE lanekeeper.durable_stream AS d
        SET used_at = clock_timestamp(), writer_seq = coalesce(p_writer_seq, d.writer_seq),
            closed_here = d.closed_here OR p_close,
            closed_by = CASE WHEN p_close THEN p_producer_id END, closed_epoch = CASE WHEN p_close THEN p_epoch END,
            closed_seq = CASE WHEN p_close THEN p_seq END
        WHERE d.session_id = v_session_id;
    END IF;
    outcome := 'done';
END
$$;
