-- Records, within a settlement that hit, how far lanes were replayed: up to p_seqs. A lane at its end is done, one whose
-- replay was paused waits, one whose replay is ending is cut: progress.requeued_after says then what comes next. p_ords are
-- ords in p_lanes and p_hit.
-- Index: replay_lane's primary key, event's. Rows: one of each for each lane.
CREATE OR REPLACE FUNCTION lanekeeper.settle_replayed(
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_hit boolean[], p_ords int[], p_kinds text[], p_seqs bigint[],
    p_replays bigint[], p_delivered int[], p_exhausted int[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_state text;
BEGIN
    FOR i IN 1 .. cardinality(p_ords) LOOP
        CONTINUE WHEN NOT p_hit[p_ords[i]] OR p_kinds[i] <> 'replayed';
        UPDATE lanekeeper.replay_lane AS r
        SET replayed_to = greatest(r.replayed_to, p_seqs[i]), delivered = r.delivered + p_delivered[i],
            exhausted = r.exhausted + p_exhausted[i],
            from_day = coalesce((
                SELECT e.day FROM lanekeeper.past_event AS e
                WHERE e.session_id = p_sessions[p_ords[i]] AND e.seq = p_seqs[i] AND e.day >= r.from_day), r.from_day),
            state = CASE WHEN r.state <> 'active' THEN r.state
                         WHEN p_seqs[i] >= r.to_seq THEN 'done'
                         WHEN y.ending IS NOT NULL THEN 'cut'
                         WHEN y.paused_at IS NOT NULL THEN 'waiting'
                         ELSE 'active' END
        FROM lanekeeper.replay AS y
        WHERE r.replay_id = p_replays[i] AND r.lane_id = p_lanes[p_ords[i]] AND y.replay_id = r.replay_id
        RETURNING r.state INTO v_state;
        CONTINUE WHEN v_state = 'active';
        UPDATE lanekeeper.progress AS p
        SET requeued_after = lanekeeper.requeued_after(p_lanes[p_ords[i]])
        -- The range of possible versions keeps the look-up from older, dead ones.
        WHERE p.lane_id = p_lanes[p_ords[i]] AND p.version + p.step = p_versions[p_ords[i]] + 1
          AND p.version BETWEEN p_versions[p_ords[i]] - 14 AND p_versions[p_ords[i]] + 1;
    END LOOP;
END
$$;
