-- Changes a document by a JSON Merge Patch (RFC 7396) and appends its event, as put_document() does; the event has the whole
-- new body.
--
-- SQLSTATEs: those of put_document(), and LK010 where the document is not there and no version was expected.
CREATE OR REPLACE FUNCTION lanekeeper.patch_document(
    IN kind text, IN id text, IN patch jsonb, IN expected_version bigint DEFAULT NULL,
    IN event_type text DEFAULT NULL, IN event jsonb DEFAULT NULL, IN headers jsonb DEFAULT '{}',
    OUT version bigint, OUT message_id uuid, OUT seq bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT c.version, c.message_id, c.seq INTO version, message_id, seq
    FROM lanekeeper.change_document('patch', kind, id, patch, expected_version, event_type, event, headers) AS c;
END
$$;
