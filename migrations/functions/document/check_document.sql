-- Raises LK006 for a kind or an id that no document can have, and for an event that no change can bring; returns where
-- nothing is wrong.
CREATE OR REPLACE FUNCTION lanekeeper.check_document(p_kind text, p_id text, p_expected bigint, p_event_type text, p_event jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (octet_length(p_kind) BETWEEN 1 AND 100 AND strpos(p_kind, '/') = 0) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('the kind %L cannot be used: nothing was changed', left(p_kind, 200)),
            HINT = 'A kind has 1 to 100 bytes and no slash.';
    END IF;
    IF (octet_length(p_id) BETWEEN 1 AND 400) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('the id cannot be used, it has %s bytes: nothing was changed', coalesce(octet_length(p_id), 0)),
            HINT = 'An id has 1 to 400 bytes.';
    END IF;
    IF p_expected < -1 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('no document has the version %s: nothing was changed', p_expected),
            HINT = 'Expect a version from 1, 0 for a document that must not be there, -1 for one that must, NULL for any.';
    END IF;
    IF p_event IS NOT NULL AND p_event_type IS NULL
       OR p_event_type IN ('DocumentCreated', 'DocumentUpdated', 'DocumentDeleted') THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'an event of your own needs an event_type of its own: nothing was changed',
            HINT = 'DocumentCreated, DocumentUpdated and DocumentDeleted tell of the change itself, where no other event is given.';
    END IF;
END
$$;
