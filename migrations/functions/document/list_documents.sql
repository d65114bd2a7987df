-- A page of the documents of a kind that are there, in the order of their ids (by bytes), behind the id `after`: 1 to 1,000
-- rows. The last id is where the next page goes on.
--
-- SQLSTATE: LK006 for another number of rows.
-- Index: document's unique names, document_version's primary key. Rows: as asked for, each with one look-up.
CREATE OR REPLACE FUNCTION lanekeeper.list_documents(kind text, after text DEFAULT NULL, max_rows int DEFAULT 100)
RETURNS TABLE (id text, version bigint, event_type text, seq bigint, changed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF list_documents.max_rows NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'a page has 1 to 1000 rows';
    END IF;
    RETURN QUERY
    SELECT d.id::text, v.version, v.event_type, v.seq, v.changed_at
    FROM (
        SELECT d.session_id, d.id FROM lanekeeper.document AS d
        WHERE d.kind = list_documents.kind AND d.id > coalesce(list_documents.after, '')
        ORDER BY d.id LIMIT coalesce(list_documents.max_rows, 100)
    ) AS d
    CROSS JOIN LATERAL (
        SELECT v.version, v.event_type, v.seq, v.changed_at FROM lanekeeper.document_version AS v
        WHERE v.session_id = d.session_id ORDER BY v.version DESC LIMIT 1
    ) AS v
    ORDER BY d.id;
END
$$;
