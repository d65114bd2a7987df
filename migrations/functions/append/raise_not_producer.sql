-- Raises LK009: the stream names its producers, and the caller is none of them; nor is the access token for whose holder a
-- worker appends.
CREATE OR REPLACE FUNCTION lanekeeper.raise_not_producer(p_stream text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- As may_produce() has it: only the owner appends for others.
    v_other text := CASE WHEN lanekeeper.is_owner(lanekeeper.calling_role())
                         THEN nullif(current_setting('lanekeeper.producer', true), '') END;
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LK009',
        MESSAGE = format('%s may not append to stream %L: nothing was enqueued',
                         coalesce(quote_literal(v_other), format('the role %I', lanekeeper.calling_role())), p_stream),
        HINT = CASE WHEN p_stream = 'lifecycle' THEN 'The engine alone appends to it. Use a stream of your own.'
                    ELSE 'The schema''s owner says who may, with lanekeeper.set_producers().' END;
END
$$;
