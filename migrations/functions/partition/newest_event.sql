-- The newest event of a session: seq, day and priority. Where retention has dropped it, the seq that session_tail kept,
-- with the day p_today; seq 0 where the session never had one.
--
-- An event's day is never before the day of the session's previous event, so the newest day has the newest seq (I1).
-- It looks in the recent partitions, then in the partition of session.newest_day; in all of them only where that day is
-- not known (I9). That one partition is named in a statement of its own, so that no other is locked. It cannot be dropped
-- meanwhile: the first statement has locked the log itself.
-- Index: event's primary key, backwards. Rows: one of each partition that is read.
--
-- enable_bitmapscan is off: to the planner, which counts no dead rows, a bitmap of all versions with a sort costs the
-- same as the first entry of the index, and behind a held snapshot it reads 1,500 pages.
CREATE OR REPLACE FUNCTION lanekeeper.newest_event(
    IN p_session_id bigint, IN p_today date,
    OUT seq bigint, OUT day date, OUT priority smallint
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET enable_bitmapscan = off
AS $$
DECLARE
    v_tail  bigint;
    v_day   date;
    v_since date;
BEGIN
    SELECT e.seq, e.day, e.priority INTO seq, day, priority
    FROM lanekeeper.recent_event AS e
    WHERE e.session_id = p_session_id
    ORDER BY e.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        SELECT s.newest_day, r.since INTO v_day, v_since
        FROM lanekeeper.session AS s CROSS JOIN lanekeeper.recent_since AS r
        WHERE s.session_id = p_session_id;
        IF v_day IS NULL THEN
            SELECT e.seq, e.day, e.priority INTO seq, day, priority
            FROM lanekeeper.event AS e
            WHERE e.session_id = p_session_id
            ORDER BY e.seq DESC LIMIT 1;
        ELSIF v_day < v_since AND to_regclass('lanekeeper.event_' || to_char(v_day, 'YYYYMMDD')) IS NOT NULL THEN
            EXECUTE format('SELECT e.seq, e.day, e.priority FROM lanekeeper.%I AS e WHERE e.session_id = $1 ORDER BY e.seq DESC LIMIT 1',
                           'event_' || to_char(v_day, 'YYYYMMDD'))
            INTO seq, day, priority USING p_session_id;
        END IF;
    END IF;
    SELECT t.seq INTO v_tail FROM lanekeeper.session_tail AS t
    WHERE t.session_id = p_session_id ORDER BY t.seq DESC LIMIT 1;
    IF seq IS NULL OR v_tail > seq THEN
        seq := coalesce(v_tail, 0);
        day := p_today;
        priority := 0;
    END IF;
END
$$;
