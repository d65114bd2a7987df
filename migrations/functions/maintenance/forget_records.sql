-- Forgets up to p_limit rows each of outcomes, history, resolved dead letters and operator actions past their retention, in days. Dead
-- letters that wait for an operator stay. An outcome stays as long as its event: without it the event would count as
-- delivered (I4). Returns how many went of each.
--
-- One process at a time; for the others there is nothing to do. The caller calls again while a kind reached the limit.
-- Index: outcome_by_age, history_by_age, dead_resolved, operation's primary key (ids are in the order of their time). Rows: at most p_limit each.
CREATE OR REPLACE FUNCTION lanekeeper.forget_records(
    IN p_outcome_days int, IN p_history_days int, IN p_dead_letter_days int, IN p_operation_days int,
    IN p_limit int,
    OUT outcomes bigint, OUT histories bigint, OUT dead_letters bigint, OUT operations bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_oldest date;
    v_before timestamptz;
BEGIN
    outcomes := 0; histories := 0; dead_letters := 0; operations := 0;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(2)) THEN
        RETURN;
    END IF;
    -- Nothing is settled before it is appended. A day to spare, for a clock that was set back.
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) - 1 INTO v_oldest
    FROM pg_catalog.pg_inherits AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'lanekeeper.event'::regclass;
    v_before := least(v_now - p_outcome_days * interval '1 day', v_oldest::timestamp AT TIME ZONE 'UTC');

    DELETE FROM lanekeeper.outcome AS o
    USING (
        SELECT x.lane_id, x.seq FROM lanekeeper.outcome AS x WHERE x.settled_at < v_before
        ORDER BY x.settled_at LIMIT p_limit
    ) AS x
    WHERE o.lane_id = x.lane_id AND o.seq = x.seq;
    GET DIAGNOSTICS outcomes = ROW_COUNT;

    DELETE FROM lanekeeper.history AS h
    USING (
        SELECT x.lane_id, x.from_seq, x.settled_at FROM lanekeeper.history AS x
        WHERE x.settled_at < v_now - p_history_days * interval '1 day'
        ORDER BY x.settled_at LIMIT p_limit
    ) AS x
    WHERE h.lane_id = x.lane_id AND h.from_seq = x.from_seq AND h.settled_at = x.settled_at;
    GET DIAGNOSTICS histories = ROW_COUNT;

    DELETE FROM lanekeeper.dead AS d
    USING (
        SELECT x.dead_id FROM lanekeeper.dead AS x
        WHERE x.resolution IS NOT NULL AND x.resolved_at < v_now - p_dead_letter_days * interval '1 day'
        ORDER BY x.resolved_at LIMIT p_limit
    ) AS x
    WHERE d.dead_id = x.dead_id;
    GET DIAGNOSTICS dead_letters = ROW_COUNT;

    -- Of the oldest ids, so that nothing else is read.
    DELETE FROM lanekeeper.operation AS o
    USING (SELECT x.operation_id FROM lanekeeper.operation AS x ORDER BY x.operation_id LIMIT p_limit) AS x
    WHERE o.operation_id = x.operation_id AND o.done_at < v_now - p_operation_days * interval '1 day';
    GET DIAGNOSTICS operations = ROW_COUNT;

    DELETE FROM lanekeeper.replay AS y
    USING (
        SELECT x.replay_id FROM lanekeeper.replay AS x
        WHERE x.ended_at < v_now - p_outcome_days * interval '1 day'
        ORDER BY x.ended_at LIMIT p_limit
    ) AS x
    WHERE y.replay_id = x.replay_id;
END
$$;
