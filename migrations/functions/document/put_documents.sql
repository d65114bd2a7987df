-- Changes up to 1,000 documents in the order of a JSON array, all or none, in the caller's transaction. Each element has
-- `kind`, `id` and one of `body` (as put_document() takes it), `patch` (as patch_document()) and `delete: true`, and
-- optionally `expected_version`, `event_type`, `event` and `headers`. Returns a row for each, in the order of the array. An
-- element sees what those before it changed.
--
-- SQLSTATEs: those of put_document() and patch_document(), with nothing changed.
--
-- Sessions are created and locked in the order of their names, all creations before the first lock, as in enqueue_many(): two
-- such calls do not deadlock. A session that is created here has the lanes_version of a dormant one, and gets its lanes with
-- its first event.
-- Index: session's unique names. Rows: one per document.
CREATE OR REPLACE FUNCTION lanekeeper.put_documents(documents jsonb)
RETURNS TABLE (version bigint, message_id uuid, seq bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_stream_id int;
    v_bad       bigint;
    -- In their order.
    v_names     text[];
    -- Some element creates it, if it is not there.
    v_created   boolean[];
    v_ids       bigint[];
BEGIN
    IF jsonb_typeof(put_documents.documents) IS DISTINCT FROM 'array' OR jsonb_array_length(put_documents.documents) > 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'documents must be a JSON array of at most 1000 objects: nothing was changed';
    END IF;
    SELECT min(i.ord) INTO v_bad
    FROM jsonb_array_elements(put_documents.documents) WITH ORDINALITY AS i (e, ord)
    WHERE CASE WHEN jsonb_typeof(i.e) <> 'object' THEN true
               ELSE jsonb_typeof(i.e -> 'kind') IS DISTINCT FROM 'string' OR jsonb_typeof(i.e -> 'id') IS DISTINCT FROM 'string'
                    OR (i.e ? 'body')::int + (i.e ? 'patch')::int + (i.e -> 'delete' IS NOT DISTINCT FROM 'true')::int <> 1
                    OR coalesce(i.e ->> 'expected_version', '0') !~ '^-?[0-9]{1,18}$'
                    OR coalesce(jsonb_typeof(i.e -> 'event_type'), 'null') NOT IN ('string', 'null')
                    OR coalesce(jsonb_typeof(i.e -> 'headers'), 'null') NOT IN ('object', 'null')
                    OR i.e - '{kind,id,body,patch,delete,expected_version,event_type,event,headers}'::text[] <> '{}' END;
    IF v_bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('element %s of the array is not valid: nothing was changed', v_bad),
            HINT = 'Each has kind, id and one of body, patch and delete (true), and may have expected_version, event_type, event and headers.';
    END IF;
    -- Says why the caller may not append, if it may not.
    PERFORM lanekeeper.check_event('documents', 'any', 'any', 'null', NULL, 0::smallint, '{}', 0);
    SELECT t.stream_id INTO v_stream_id FROM lanekeeper.stream AS t WHERE t.name = 'documents';
    SELECT array_agg(i.name ORDER BY i.name), array_agg(i.created ORDER BY i.name) INTO v_names, v_created
    FROM (
        SELECT ((i.e ->> 'kind') || '/' || (i.e ->> 'id')) COLLATE "C" AS name, bool_or(i.e ? 'body') AS created
        FROM jsonb_array_elements(put_documents.documents) AS i (e)
        GROUP BY 1
    ) AS i
    -- Longer ones are refused below.
    WHERE octet_length(i.name) <= 512;
    IF v_names IS NULL AND jsonb_array_length(put_documents.documents) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(s.session_id) INTO v_ids
    FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = ANY (v_names);
    PERFORM lanekeeper.bound_append_locks(coalesce(v_ids, '{}'), coalesce(cardinality(v_names), 0) - coalesce(cardinality(v_ids), 0));
    INSERT INTO lanekeeper.session (stream_id, name, lanes_version, newest_day)
    SELECT v_stream_id, u.name, -2, (clock_timestamp() AT TIME ZONE 'UTC')::date
    FROM unnest(v_names, v_created) WITH ORDINALITY AS u (name, created, ord)
    WHERE u.created AND NOT EXISTS (
        SELECT FROM lanekeeper.session AS s WHERE s.stream_id = v_stream_id AND s.name = u.name)
    ORDER BY u.ord
    ON CONFLICT DO NOTHING;
    PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(u.session_id))
    FROM (
        SELECT s.session_id FROM unnest(v_names) WITH ORDINALITY AS u (name, ord)
        CROSS JOIN LATERAL (
            SELECT s.session_id FROM lanekeeper.session AS s
            WHERE s.stream_id = v_stream_id AND s.name = u.name OFFSET 0
        ) AS s
        ORDER BY u.ord OFFSET 0
    ) AS u;
    RETURN QUERY
    SELECT c.version, c.message_id, c.seq, c.created
    FROM jsonb_array_elements(put_documents.documents) WITH ORDINALITY AS i (e, ord)
    CROSS JOIN LATERAL lanekeeper.change_document(
        CASE WHEN i.e ? 'body' THEN 'put' WHEN i.e ? 'patch' THEN 'patch' ELSE 'delete' END,
        i.e ->> 'kind', i.e ->> 'id', coalesce(i.e -> 'body', i.e -> 'patch'), (i.e ->> 'expected_version')::bigint,
        i.e ->> 'event_type', nullif(i.e -> 'event', 'null'), coalesce(nullif(i.e -> 'headers', 'null'), '{}')) AS c
    ORDER BY i.ord;
END
$$;
