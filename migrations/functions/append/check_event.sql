-- Refuses what no append takes, with the error that tells why; returns where nothing is wrong. Sizes in bytes.
-- SQLSTATEs: LK003, LK005, LK006, LK009.
CREATE OR REPLACE FUNCTION lanekeeper.check_event(
    p_stream text, p_session text, p_event_type text, p_payload jsonb, p_dedupe_key text, p_priority smallint,
    p_headers jsonb, p_size int
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_max_bytes int;
    v_producers text[];
BEGIN
    SELECT s.max_payload_bytes, s.producers INTO v_max_bytes, v_producers FROM lanekeeper.stream AS s WHERE s.name = p_stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(p_stream);
    END IF;
    IF v_producers IS NOT NULL AND NOT lanekeeper.may_produce(v_producers) THEN
        PERFORM lanekeeper.raise_not_producer(p_stream);
    END IF;
    IF p_payload IS NULL OR coalesce(p_session, '') = '' OR coalesce(p_event_type, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'session, event_type and payload must not be null or empty: nothing was enqueued',
            HINT = 'A JSON null is a payload too: pass ''null''::jsonb.';
    END IF;
    IF octet_length(p_session) > 512 OR octet_length(p_event_type) > 200
       OR octet_length(p_dedupe_key) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'session takes at most 512 bytes, event_type 200 and dedupe_key 1 to 512: nothing was enqueued';
    END IF;
    IF p_priority IS NULL OR p_priority NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'priority must be between -100 and 100: nothing was enqueued';
    END IF;
    IF jsonb_typeof(p_headers) <> 'object' OR octet_length(p_headers::text) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'headers must be a JSON object of at most 65536 bytes: nothing was enqueued';
    END IF;
    IF p_headers ? 'lanekeeper-cancelled' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'the header lanekeeper-cancelled is given by lanekeeper.cancel() alone: nothing was enqueued';
    END IF;
    IF p_size > v_max_bytes THEN
        RAISE EXCEPTION USING ERRCODE = 'LK005',
            MESSAGE = format('the payload has %s bytes and stream %L takes at most %s: nothing was enqueued',
                             p_size, p_stream, v_max_bytes),
            HINT = 'Store the large part elsewhere and send a reference, or raise max_payload_bytes of the stream.';
    END IF;
END
$$;
