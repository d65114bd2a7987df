-- Forgets versions of documents that were superseded more than p_days days ago. Looks at up to p_limit versions; returns at
-- how many. The newest version of a document stays however old it is, that of a deletion too: numbers go on after it.
--
-- A round goes on where the last one ended: it meets each version once, by its age, and deletes those before it. So what
-- does not change costs no round anything. A transaction that was open for longer than p_days may bring a version behind
-- that place; what it superseded goes with the document's next change.
-- One process at a time; for the others there is nothing to do. The caller calls again while the limit was reached.
-- Index: document_version_by_age, document_version's primary key. Rows: at most p_limit, and what is before them.
CREATE OR REPLACE FUNCTION lanekeeper.forget_document_versions(p_days int, p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    v_before   timestamptz := clock_timestamp() - p_days * interval '1 day';
    -- Where the last round ended.
    v_from     timestamptz;
    v_behind   bigint;
    v_sessions bigint[];
    v_versions bigint[];
    v_ages     timestamptz[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(2)) THEN
        RETURN 0;
    END IF;
    SELECT r.changed_at, r.session_id INTO STRICT v_from, v_behind FROM lanekeeper.document_round AS r WHERE r.single;
    SELECT array_agg(v.session_id ORDER BY v.changed_at, v.session_id), array_agg(v.version ORDER BY v.changed_at, v.session_id),
           array_agg(v.changed_at ORDER BY v.changed_at, v.session_id)
    INTO v_sessions, v_versions, v_ages
    FROM (
        SELECT v.session_id, v.version, v.changed_at FROM lanekeeper.document_version AS v
        WHERE (v.changed_at, v.session_id) > (v_from, v_behind) AND v.changed_at < v_before
        ORDER BY v.changed_at, v.session_id LIMIT p_limit
    ) AS v;
    IF v_sessions IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM lanekeeper.document_version AS v
    USING unnest(v_sessions, v_versions) AS u (session_id, version)
    WHERE v.session_id = u.session_id AND v.version < u.version;
    UPDATE lanekeeper.document_round AS r
    SET changed_at = v_ages[cardinality(v_ages)], session_id = v_sessions[cardinality(v_sessions)]
    WHERE r.single;
    RETURN cardinality(v_sessions);
END
$$;
