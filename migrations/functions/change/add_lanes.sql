-- Adds the lanes that a subscription lacks in sessions that existed before it, up to p_limit sessions at a time, and makes
-- them ready where it starts at the earliest event. Returns the last session_id handled; NULL where there is none after
-- p_after_session. Called by `apply`.
--
-- A session that a producer is appending to is not waited for: a row in stream_change leaves it to finish_changes().
CREATE OR REPLACE FUNCTION lanekeeper.add_lanes(p_subscription_id int, p_after_session bigint, p_limit int)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    v_stream_id int;
    v_ids       bigint[];
    v_done      record;
BEGIN
    SELECT s.stream_id INTO STRICT v_stream_id
    FROM lanekeeper.subscription AS s WHERE s.subscription_id = p_subscription_id;
    SELECT array_agg(b.session_id ORDER BY b.session_id) INTO v_ids
    FROM (
        SELECT s.session_id FROM lanekeeper.session AS s
        WHERE s.stream_id = v_stream_id AND s.session_id > p_after_session
        ORDER BY s.session_id LIMIT p_limit
    ) AS b;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT a.added, a.passed_over INTO v_done
    FROM lanekeeper.add_missing_lanes(v_stream_id, p_subscription_id, v_ids) AS a;
    IF v_done.added > 0 THEN
        PERFORM lanekeeper.ring();
    END IF;
    IF v_done.passed_over > 0 THEN
        INSERT INTO lanekeeper.stream_change (stream_id)
        SELECT v_stream_id
        WHERE NOT EXISTS (SELECT FROM lanekeeper.stream_change AS c WHERE c.stream_id = v_stream_id)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN v_ids[cardinality(v_ids)];
END
$$;
