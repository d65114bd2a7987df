-- What a replay would deliver again: for each lane of a subscription, the range of its settled events, how many its filter
-- lets through, and the bytes of their payloads. Lanes without any are left out. Cancelled events count for nothing.
-- p_sessions: a session, or a pattern in which * stands for any characters; NULL: all. The seqs need one session. An event
-- at p_from_at is in, one at p_to_at is not. Days that were restored from the archive count like those of the log. Where
-- earlier events of a session are in neither, its range begins with the first that there is; a p_from_seq before that is refused with LK006.
-- Nothing is locked: what is settled stays settled. SQLSTATEs: LK006 invalid, LK010 no such session.
-- Index: session's (stream_id, name), lane's (session_id, subscription_id), event's primary key. Rows: the sessions of the
-- stream, where p_sessions is a pattern or NULL, and the events of the ranges.
CREATE OR REPLACE FUNCTION lanekeeper.replay_ranges(
    p_subscription text, p_sessions text DEFAULT NULL, p_from_seq bigint DEFAULT NULL, p_to_seq bigint DEFAULT NULL,
    p_from_at timestamptz DEFAULT NULL, p_to_at timestamptz DEFAULT NULL
) RETURNS TABLE (lane_id bigint, session text, from_seq bigint, from_day date, to_seq bigint, events bigint, bytes bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_of      record;
    v_one     boolean := coalesce(strpos(p_sessions, '*') = 0, false);
    v_like    text := replace(replace(replace(replace(p_sessions, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%');
    v_session bigint;
    v_first   bigint;
BEGIN
    SELECT s.subscription_id, s.stream_id, s.events, s.adapter, t.name AS stream INTO v_of
    FROM lanekeeper.subscription AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.name = p_subscription AND s.removed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('there is no subscription %L: nothing is replayed', left(p_subscription, 200)),
            HINT = 'List them with `lanekeeper subscription list`.';
    END IF;
    IF v_of.adapter = 'projection' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('subscription %L is a projection, which would count its events twice: nothing is replayed',
                             left(p_subscription, 200)),
            HINT = 'Rebuild it with `lanekeeper projection rebuild`.';
    END IF;
    IF (p_from_seq IS NOT NULL OR p_to_seq IS NOT NULL) AND NOT v_one THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'a range of seqs needs one session, since each session has seqs of its own: nothing is replayed',
            HINT = 'Name the session, or give instants in place of seqs.';
    END IF;
    IF p_from_seq < 1 OR p_to_seq < coalesce(p_from_seq, 1) OR p_to_at <= p_from_at THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'the range ends before it begins: nothing is replayed',
            HINT = 'Seqs count from 1; the end is behind the beginning.';
    END IF;
    IF v_one THEN
        SELECT n.session_id INTO v_session FROM lanekeeper.session AS n
        WHERE n.stream_id = v_of.stream_id AND n.name = p_sessions;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'LK010',
                MESSAGE = format('the stream %L has no session %L: nothing is replayed', v_of.stream, left(p_sessions, 200)),
                HINT = 'List them with `lanekeeper session list`. In a pattern, * stands for any characters.';
        END IF;
        IF p_from_seq IS NOT NULL THEN
            SELECT e.seq INTO v_first FROM lanekeeper.past_event AS e WHERE e.session_id = v_session ORDER BY e.seq LIMIT 1;
            IF v_first > p_from_seq THEN
                RAISE EXCEPTION USING ERRCODE = 'LK006',
                    MESSAGE = format('the log begins with seq %s in session %L, and seq %s is gone: nothing is replayed',
                                     v_first, left(p_sessions, 200), p_from_seq),
                    HINT = format('Replay from seq %s on. Older days may be in the archive: see `lanekeeper archive list` and '
                                  '`lanekeeper archive restore`.', v_first);
            END IF;
        END IF;
    END IF;
    RETURN QUERY
    SELECT l.lane_id, n.name, e.from_seq, e.from_day, e.to_seq, e.events, e.bytes
    FROM (
        SELECT n.session_id, n.name FROM lanekeeper.session AS n
        WHERE v_one AND n.session_id = v_session
        UNION ALL
        SELECT n.session_id, n.name FROM lanekeeper.session AS n
        WHERE NOT v_one AND n.stream_id = v_of.stream_id AND (p_sessions IS NULL OR n.name LIKE v_like)
    ) AS n
    JOIN lanekeeper.lane AS l ON l.session_id = n.session_id AND l.subscription_id = v_of.subscription_id
    CROSS JOIN LATERAL (
        SELECT p.cursor FROM lanekeeper.progress AS p WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
    ) AS p
    CROSS JOIN LATERAL (
        SELECT min(e.seq) AS from_seq, min(e.day) AS from_day, max(e.seq) AS to_seq, count(*) AS events,
               coalesce(sum(e.size), 0)::bigint AS bytes
        FROM lanekeeper.past_event AS e
        WHERE e.session_id = n.session_id AND e.seq >= coalesce(p_from_seq, 1) AND e.seq <= least(p.cursor, p_to_seq)
          -- An event's day is never before its instant.
          AND e.day >= coalesce((p_from_at AT TIME ZONE 'UTC')::date, '-infinity')
          AND (p_from_at IS NULL OR e.created_at >= p_from_at) AND (p_to_at IS NULL OR e.created_at < p_to_at)
          AND (v_of.events IS NULL OR e.event_type = ANY (v_of.events)) AND NOT lanekeeper.is_cancelled(e.headers)
    ) AS e
    WHERE e.events > 0
    ORDER BY l.lane_id;
END
$$;
