-- Changes one document and appends its event, in the caller's transaction: p_change is put, patch or delete. What
-- put_document(), patch_document() and delete_document() promise is kept here.
--
-- Order (I1): the session's append lock is taken first, as enqueue() does, and the version is read in a later statement, so
-- in READ COMMITTED it is the newest. In the stricter levels the snapshot may be older than the lock: the append of the
-- event raises 40001 then, because every change of a document appends an event to its session.
--
-- The version is checked after the right to append: who may not append learns no version.
-- enable_bitmapscan is off for the reason given in newest_event().
-- Index: stream's and session's unique names, document_version's primary key backwards. Rows: one of each.
CREATE OR REPLACE FUNCTION lanekeeper.change_document(
    IN p_change text, IN p_kind text, IN p_id text, IN p_body jsonb, IN p_expected bigint,
    IN p_event_type text, IN p_event jsonb, IN p_headers jsonb,
    OUT version bigint, OUT message_id uuid, OUT seq bigint, OUT created boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_session    text := p_kind || '/' || p_id;
    v_session_id bigint;
    v_max_bytes  int;
    v_version    bigint;
    -- It is there, and not deleted.
    v_is_there   boolean;
    v_before     jsonb;
    v_changed_at timestamptz;
    v_body       jsonb := p_body;
    v_type       text;
    v_payload    jsonb := p_event;
    v_headers    jsonb := coalesce(p_headers, '{}');
BEGIN
    IF (octet_length(p_kind) BETWEEN 1 AND 100 AND strpos(p_kind, '/') = 0 AND octet_length(p_id) BETWEEN 1 AND 400) IS NOT TRUE
       OR p_expected < -1 OR p_event_type IS NOT NULL OR p_event IS NOT NULL THEN
        PERFORM lanekeeper.check_document(p_kind, p_id, p_expected, p_event_type, p_event);
    END IF;
    IF p_body IS NULL AND p_change <> 'delete' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'a document must have a body: nothing was changed',
            HINT = 'A JSON null is a body too: pass ''null''::jsonb. delete_document() deletes a document.';
    END IF;
    -- The lock is the last thing that happens to the one row, as in enqueue().
    SELECT s.session_id, t.max_payload_bytes + CASE WHEN pg_advisory_xact_lock(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) IS NOT NULL THEN 0 END
    INTO v_session_id, v_max_bytes
    FROM lanekeeper.stream AS t
    CROSS JOIN LATERAL (
        SELECT s.session_id FROM lanekeeper.session AS s
        WHERE s.stream_id = t.stream_id AND s.name = v_session OFFSET 0
    ) AS s
    WHERE t.name = 'documents' AND (t.producers IS NULL OR lanekeeper.may_produce(t.producers));
    IF v_session_id IS NULL THEN
        -- Says why the caller may not append, if it may not.
        PERFORM lanekeeper.check_event('documents', v_session, 'DocumentCreated', 'null', NULL, 0::smallint, '{}', 0);
        SELECT t.max_payload_bytes INTO v_max_bytes FROM lanekeeper.stream AS t WHERE t.name = 'documents';
        IF p_change = 'put' AND coalesce(p_expected, 0) = 0 THEN
            SELECT o.session_id INTO v_session_id FROM lanekeeper.open_session('documents', v_session) AS o;
        END IF;
    END IF;
    -- From here on, in READ COMMITTED, every statement sees all earlier changes of the document.
    SELECT v.version, v.body IS NOT NULL, CASE WHEN p_change = 'patch' THEN v.body END, v.changed_at
    INTO v_version, v_is_there, v_before, v_changed_at
    FROM lanekeeper.document_version AS v
    WHERE v.session_id = v_session_id
    ORDER BY v.version DESC LIMIT 1;
    v_version := coalesce(v_version, 0);
    v_is_there := coalesce(v_is_there, false);
    IF p_expected > 0 AND (NOT v_is_there OR p_expected <> v_version) OR p_expected = 0 AND v_is_there
       OR p_expected = -1 AND NOT v_is_there THEN
        PERFORM lanekeeper.raise_version_conflict(v_session_id, p_kind, p_id, CASE WHEN v_is_there THEN v_version ELSE 0 END, p_expected);
    END IF;
    IF NOT v_is_there AND p_change <> 'put' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK010',
            MESSAGE = format('there is no document %L of kind %L: nothing was changed', left(p_id, 200), p_kind),
            HINT = 'put_document() creates one.';
    END IF;

    IF p_change = 'patch' THEN
        -- A merge copies what it changes once for each level of the patch.
        IF octet_length(p_body::text) > v_max_bytes THEN
            PERFORM lanekeeper.check_event('documents', v_session, 'patch', p_body, NULL, 0::smallint, '{}', octet_length(p_body::text));
        END IF;
        v_body := lanekeeper.merge_patch(v_before, p_body);
    END IF;
    version := v_version + 1;
    created := NOT v_is_there;
    v_type := coalesce(p_event_type, CASE WHEN p_change = 'delete' THEN 'DocumentDeleted'
                                          WHEN v_is_there THEN 'DocumentUpdated' ELSE 'DocumentCreated' END);
    IF v_payload IS NULL THEN
        v_payload := CASE WHEN p_change = 'delete' THEN jsonb_build_object('kind', p_kind, 'id', p_id, 'version', version)
                          ELSE jsonb_build_object('kind', p_kind, 'id', p_id, 'version', version, 'body', v_body) END;
    ELSE
        -- An event that tells of the change itself has the body, and is bounded with it.
        IF octet_length(v_body::text) > v_max_bytes THEN
            RAISE EXCEPTION USING ERRCODE = 'LK005',
                MESSAGE = format('the body has %s bytes and stream ''documents'' takes at most %s: nothing was changed',
                                 octet_length(v_body::text), v_max_bytes),
                HINT = 'Store the large part elsewhere and keep a reference, or raise max_payload_bytes of the stream.';
        END IF;
        -- Headers that are no object are refused by the append.
        IF jsonb_typeof(v_headers) = 'object' THEN
            v_headers := v_headers || jsonb_build_object('document_version', version);
        END IF;
    END IF;
    SELECT e.message_id, e.seq INTO message_id, seq
    FROM lanekeeper.enqueue('documents', v_session, v_type, v_payload, headers => v_headers) AS e;
    -- The clock may be set back.
    INSERT INTO lanekeeper.document_version (session_id, version, changed_at, seq, message_id, event_type, body)
    VALUES (v_session_id, change_document.version, greatest(clock_timestamp(), v_changed_at + interval '1 microsecond'),
            change_document.seq, change_document.message_id, v_type, CASE WHEN p_change <> 'delete' THEN v_body END);
    IF NOT v_is_there THEN
        INSERT INTO lanekeeper.document (session_id, kind, id) VALUES (v_session_id, p_kind, p_id);
    ELSIF p_change = 'delete' THEN
        DELETE FROM lanekeeper.document AS d WHERE d.session_id = v_session_id;
    END IF;
END
$$;
