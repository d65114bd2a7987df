-- Raises LK002, with when and why the session was closed. Shared by all append functions.
CREATE OR REPLACE FUNCTION lanekeeper.raise_session_closed(p_session_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_session record;
BEGIN
    SELECT t.name AS stream, s.name, s.closed_at, s.close_reason INTO STRICT v_session
    FROM lanekeeper.session AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.session_id = p_session_id;
    RAISE EXCEPTION USING ERRCODE = 'LK002',
        MESSAGE = format('session %L of stream %L is closed since %s%s: nothing was enqueued',
                         left(v_session.name, 200), v_session.stream,
                         to_char(v_session.closed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                         coalesce(' (' || left(v_session.close_reason, 200) || ')', '')),
        HINT = 'Append to another session, or reopen this one with `lanekeeper session reopen`.';
END
$$;
