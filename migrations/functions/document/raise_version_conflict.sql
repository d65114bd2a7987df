-- Raises LK004 with the version that there is, 0 where the document is not there; its DETAIL is that version as JSON.
--
-- In REPEATABLE READ and SERIALIZABLE the snapshot may be older than the append lock, and the version with it: then 40001
-- is raised, as for any change.
CREATE OR REPLACE FUNCTION lanekeeper.raise_version_conflict(
    p_session_id bigint, p_kind text, p_id text, p_version bigint, p_expected bigint
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF p_session_id IS NOT NULL AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM lanekeeper.refuse_stale_snapshot(p_session_id, n.seq + 1, n.day, v_today)
        FROM lanekeeper.newest_event(p_session_id, v_today) AS n;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'LK004',
        MESSAGE = format('the document %L of kind %L is %s, and %s: nothing was changed', left(p_id, 200), p_kind,
            CASE p_version WHEN 0 THEN 'not there' ELSE 'at version ' || p_version END,
            CASE p_expected WHEN 0 THEN 'must not be there' WHEN -1 THEN 'must be there'
                 ELSE 'version ' || p_expected || ' was expected' END),
        DETAIL = format('{"version": %s}', p_version),
        HINT = 'Read the document again, and decide anew.';
END
$$;
