-- Raises LK003, with the names of the streams that the caller may append to. Shared by all append functions.
CREATE OR REPLACE FUNCTION lanekeeper.raise_unknown_stream(p_stream text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LK003',
        MESSAGE = format('unknown stream %L: nothing was enqueued', p_stream),
        HINT = 'Streams are: ' || coalesce((SELECT string_agg(s.name, ', ' ORDER BY s.name) FROM lanekeeper.stream AS s
                                   WHERE s.producers IS NULL OR lanekeeper.may_produce(s.producers)), 'none that this role may append to')
               || '. Add your own with a [stream.NAME] section and `lanekeeper apply`.';
END
$$;
