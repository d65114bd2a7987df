-- A document as it is, at one of its versions, or at an instant: the newest version that was written by then. No row where
-- the document was not there yet, or where the version is past its retention. A deletion is a version without a body:
-- `deleted`. The document's name is kind and id, as in put_document().
--
-- SQLSTATE: LK006 for a version and an instant at once.
-- Index: the unique names of stream and session, document_version's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.get_document(
    kind text, id text, at_version bigint DEFAULT NULL, at_time timestamptz DEFAULT NULL
)
RETURNS TABLE (version bigint, body jsonb, deleted boolean, event_type text, message_id uuid, seq bigint, changed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF get_document.at_version IS NOT NULL AND get_document.at_time IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'a version and an instant were asked for: pass one of them';
    END IF;
    RETURN QUERY
    SELECT v.version, v.body, v.body IS NULL, v.event_type, v.message_id, v.seq, v.changed_at
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id AND s.name = get_document.kind || '/' || get_document.id
    CROSS JOIN LATERAL (
        SELECT v.version, v.body, v.event_type, v.message_id, v.seq, v.changed_at
        FROM lanekeeper.document_version AS v
        WHERE v.session_id = s.session_id
          AND (get_document.at_version IS NULL OR v.version = get_document.at_version)
          AND (get_document.at_time IS NULL OR v.changed_at <= get_document.at_time)
        ORDER BY v.version DESC LIMIT 1
    ) AS v
    -- A kind has no slash: "a" and "b/c" are one name only.
    WHERE t.name = 'documents' AND strpos(get_document.kind, '/') = 0;
END
$$;
