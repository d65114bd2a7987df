-- Raises LK009: the stream names its producers, and the caller is none of them.
CREATE OR REPLACE FUNCTION lanekeeper.raise_not_producer(p_stream text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LK009',
        MESSAGE = format('the role %I may not append to stream %L: nothing was enqueued', lanekeeper.calling_role(), p_stream),
        HINT = CASE WHEN p_stream = 'lifecycle' THEN 'The engine alone appends to it. Use a stream of your own.'
                    ELSE 'The schema''s owner says who may, with lanekeeper.set_producers().' END;
END
$$;
