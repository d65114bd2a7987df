-- Adds lanes to those of the given sessions, all of one stream, that lack one of p_subscription_id or of a subscription
-- from the earliest event. Waits for nobody: a session whose append lock is taken is passed over. Returns how many were
-- passed over, and how many sessions got lanes.
--
-- The stream's version is read before the locks: a subscription that is added later finds the sessions at an older one.
-- Index: lane's unique (session_id, subscription_id). Rows: those of the sessions given.
CREATE OR REPLACE FUNCTION lanekeeper.add_missing_lanes(
    IN p_stream_id int, IN p_subscription_id int, IN p_session_ids bigint[], OUT added bigint, OUT passed_over bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_version bigint;
    v_lacking bigint[];
    v_ids     bigint[];
    v_newest  bigint[];
    v_today   date;
BEGIN
    added := 0; passed_over := 0;
    -- Before the locks: a subscription that is added later finds the sessions at an older version.
    SELECT t.lanes_version INTO STRICT v_version
    FROM lanekeeper.stream AS t WHERE t.stream_id = p_stream_id;
    SELECT array_agg(u.session_id) INTO v_lacking
    FROM unnest(p_session_ids) AS u (session_id)
    JOIN lanekeeper.session AS n ON n.session_id = u.session_id
    -- A dormant session has no event that a lane would be for.
    WHERE n.lanes_version <> -2 AND EXISTS (
        SELECT FROM lanekeeper.subscription AS s
        WHERE s.stream_id = p_stream_id AND s.removed_at IS NULL
          AND (s.start_from = 'earliest' OR s.subscription_id = p_subscription_id)
          -- By the session alone: there is an index by subscription too, which an empty table makes look as good.
          AND NOT EXISTS (
              SELECT FROM (
                  SELECT l.subscription_id FROM lanekeeper.lane AS l WHERE l.session_id = u.session_id OFFSET 0
              ) AS l WHERE l.subscription_id = s.subscription_id)
        OFFSET 0);
    IF v_lacking IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(t.session_id) FILTER (WHERE t.locked), count(*) FILTER (WHERE NOT t.locked)
    INTO v_ids, passed_over
    FROM (
        SELECT u.session_id, pg_try_advisory_xact_lock(lanekeeper.append_lock(u.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) AS locked
        FROM unnest(v_lacking) AS u (session_id)
    ) AS t;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    v_today := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    SELECT array_agg(n.seq ORDER BY u.ord) INTO v_newest
    FROM unnest(v_ids) WITH ORDINALITY AS u (session_id, ord)
    CROSS JOIN LATERAL lanekeeper.newest_event(u.session_id, v_today) AS n;
    PERFORM lanekeeper.create_lanes(v_ids, v_newest, p_stream_id, v_version, v_today);
    added := cardinality(v_ids);
END
$$;
