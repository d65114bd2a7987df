-- Ends the sessions of a bulk call whose events end with a terminal one: see end_session(). Raises LK002 where an event of the
-- call is behind a terminal event of its session, and names it. Per session: p_session_ids and p_newest, its newest seq; per
-- event: the ord of its session, and its number among that session's events. The caller has the append locks.
-- Rows: the events once, and one for each session that ends.
CREATE OR REPLACE FUNCTION lanekeeper.end_sessions(
    p_session_ids bigint[], p_newest bigint[], p_session_ords int[], p_nths int[], p_events jsonb, p_terminal text[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_end   record;
    v_first record;
BEGIN
    FOR v_end IN
        SELECT i.session_ord, i.name, i.event_type, i.nth, i.last
        FROM (
            SELECT i.session_ord, i.nth, i.e ->> 'session' AS name, i.e ->> 'event_type' AS event_type,
                   i.e ->> 'event_type' = ANY (p_terminal) AS ends,
                   max(i.nth) OVER (PARTITION BY i.session_ord) AS last
            FROM ROWS FROM (jsonb_array_elements(p_events), unnest(p_session_ords), unnest(p_nths)) AS i (e, session_ord, nth)
        ) AS i
        WHERE i.ends
        ORDER BY i.session_ord, i.nth
    LOOP
        IF v_end.nth < v_end.last THEN
            SELECT i.ord INTO STRICT v_first
            FROM unnest(p_session_ords, p_nths) WITH ORDINALITY AS i (session_ord, nth, ord)
            WHERE i.session_ord = v_end.session_ord AND i.nth = v_end.nth + 1;
            RAISE EXCEPTION USING ERRCODE = 'LK002',
                MESSAGE = format('event %s of the array is behind %L, which ends session %L: nothing was enqueued',
                                 v_first.ord, v_end.event_type, left(v_end.name, 200)),
                HINT = 'A session takes nothing behind its terminal event. Append what comes later to another session.';
        END IF;
        PERFORM lanekeeper.end_session(
            p_session_ids[v_end.session_ord], p_newest[v_end.session_ord] + v_end.nth, v_end.event_type);
    END LOOP;
END
$$;
