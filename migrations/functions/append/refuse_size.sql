-- Raises LK005 for an element of a bulk call whose payload is too large. Returns int only so that it can stand in an
-- expression.
CREATE OR REPLACE FUNCTION lanekeeper.refuse_size(p_ord bigint, p_size int, p_max_bytes int) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LK005',
        MESSAGE = format('the payload of event %s of the array has %s bytes and the stream takes at most %s: nothing was enqueued',
                         p_ord, p_size, p_max_bytes),
        HINT = 'Store the large part elsewhere and send a reference, or raise max_payload_bytes of the stream.';
END
$$;
