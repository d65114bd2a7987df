-- A document as it is, at one of its versions, or at an instant: the newest version that was written by then. No row where
-- the document was not there yet, or where the version is past its retention. A deletion is a version without a body:
-- `deleted`. The document's name is kind and id, as in put_document().
--
-- SQLSTATE: LK006 for a version and an instant at once.
--
-- Versions have no gaps and their instants grow, so the one of an instant is found by halving, however many there are.
-- Index: the unique names of stream and session, document_version's primary key. Rows: one; for an instant at most 64 more.
CREATE OR REPLACE FUNCTION lanekeeper.get_document(
    kind text, id text, at_version bigint DEFAULT NULL, at_time timestamptz DEFAULT NULL
)
RETURNS TABLE (version bigint, body jsonb, deleted boolean, event_type text, message_id uuid, seq bigint, changed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session_id bigint;
    -- Not before this version, where there is one.
    v_oldest     bigint;
    v_newest     bigint;
    v_middle     bigint;
BEGIN
    IF get_document.at_version IS NOT NULL AND get_document.at_time IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'a version and an instant were asked for: pass one of them';
    END IF;
    -- A kind has no slash: "a" and "b/c" are one name only.
    SELECT s.session_id INTO v_session_id
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id AND s.name = get_document.kind || '/' || get_document.id
    WHERE t.name = 'documents' AND strpos(get_document.kind, '/') = 0;
    v_newest := get_document.at_version;
    IF v_newest IS NULL THEN
        SELECT v.version INTO v_newest FROM lanekeeper.document_version AS v
        WHERE v.session_id = v_session_id ORDER BY v.version DESC LIMIT 1;
    END IF;
    IF get_document.at_time IS NOT NULL THEN
        SELECT v.version INTO v_oldest FROM lanekeeper.document_version AS v
        WHERE v.session_id = v_session_id ORDER BY v.version LIMIT 1;
        WHILE v_oldest < v_newest LOOP
            v_middle := v_newest - (v_newest - v_oldest) / 2;
            IF EXISTS (SELECT FROM lanekeeper.document_version AS v
                       WHERE v.session_id = v_session_id AND v.version = v_middle AND v.changed_at <= get_document.at_time) THEN
                v_oldest := v_middle;
            ELSE
                v_newest := v_middle - 1;
            END IF;
        END LOOP;
    END IF;
    RETURN QUERY
    SELECT v.version, v.body, v.body IS NULL, v.event_type, v.message_id, v.seq, v.changed_at
    FROM lanekeeper.document_version AS v
    WHERE v.session_id = v_session_id AND v.version = v_newest
      AND (get_document.at_time IS NULL OR v.changed_at <= get_document.at_time);
END
$$;
