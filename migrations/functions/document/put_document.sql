-- Creates or replaces a document and appends its event, in the caller's transaction: both are there if and only if it
-- commits. Returns the document's new version, and the message id and seq of the event in the session `kind/id` of the
-- stream `documents`, and whether it was created.
--
-- `expected_version`: the version that the document must be at; 0: it must not be there; -1: it must be there; NULL: any.
-- The event is DocumentCreated or DocumentUpdated, with kind, id, version and body, unless the caller gives an `event_type`.
-- With `event` its payload is the caller's, and its header `document_version` tells the version.
-- `kind` takes 1 to 100 bytes without a slash, `id` 1 to 400 bytes, the body any JSON that the stream's max_payload_bytes
-- lets through, with the other fields of the event.
--
-- SQLSTATEs, each with nothing changed: LK002 the document's session is closed, LK003 there is no stream `documents`, LK004
-- another version, which the DETAIL has as `{"version": N}` (0: it is not there), LK005 too large, LK006 invalid argument,
-- LK009 the stream is other producers'; 40001 in REPEATABLE READ and SERIALIZABLE, where another transaction changed the
-- document after the snapshot.
CREATE OR REPLACE FUNCTION lanekeeper.put_document(
    IN kind text, IN id text, IN body jsonb, IN expected_version bigint DEFAULT NULL,
    IN event_type text DEFAULT NULL, IN event jsonb DEFAULT NULL, IN headers jsonb DEFAULT '{}',
    OUT version bigint, OUT message_id uuid, OUT seq bigint, OUT created boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT c.version, c.message_id, c.seq, c.created INTO version, message_id, seq, created
    FROM lanekeeper.change_document('put', kind, id, body, expected_version, event_type, event, headers) AS c;
END
$$;
