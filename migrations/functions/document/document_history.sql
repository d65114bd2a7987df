-- A page of the versions of a document, the newest first, before the version `before`: 1 to 1,000 rows. Versions past their
-- retention are gone. A deletion is a version too: `deleted`.
--
-- SQLSTATE: LK006 for another number of rows.
--
-- The session is looked up first: one statement with both may read all versions, and sort them.
-- Index: the unique names of stream and session, document_version's primary key backwards. Rows: as asked for.
CREATE OR REPLACE FUNCTION lanekeeper.document_history(kind text, id text, before bigint DEFAULT NULL, max_rows int DEFAULT 100)
RETURNS TABLE (version bigint, deleted boolean, event_type text, message_id uuid, seq bigint, changed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
BEGIN
    IF document_history.max_rows NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'a page has 1 to 1000 rows';
    END IF;
    SELECT s.session_id INTO v_session_id
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id AND s.name = document_history.kind || '/' || document_history.id
    WHERE t.name = 'documents' AND strpos(document_history.kind, '/') = 0;
    RETURN QUERY
    SELECT v.version, v.body IS NULL, v.event_type, v.message_id, v.seq, v.changed_at
    FROM lanekeeper.document_version AS v
    WHERE v.session_id = v_session_id AND v.version < coalesce(document_history.before, 9223372036854775807)
    ORDER BY v.version DESC LIMIT coalesce(document_history.max_rows, 100);
END
$$;
