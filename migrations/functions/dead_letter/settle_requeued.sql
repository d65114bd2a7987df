-- Records, within a settlement that hit, the results of requeued dead letters. redelivered: the destination has accepted
-- it, and the event counts as delivered, so its outcome is removed (I4). dead_lettered_again: it was exhausted once more
-- and waits for an operator. progress.requeued_after moves to the next one. p_ords are ords in p_lanes and p_hit.
CREATE OR REPLACE FUNCTION lanekeeper.settle_requeued(
    p_lanes bigint[], p_versions bigint[], p_hit boolean[], p_ords int[], p_kinds text[], p_dead_ids bigint[],
    p_errors text[], p_attempts int[], p_crashes int[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_lane_id bigint;
    v_seq     bigint;
BEGIN
    FOR i IN 1 .. cardinality(p_ords) LOOP
        CONTINUE WHEN NOT p_hit[p_ords[i]] OR p_kinds[i] NOT IN ('redelivered', 'dead_lettered_again');
        v_lane_id := p_lanes[p_ords[i]];
        IF p_kinds[i] = 'redelivered' THEN
            UPDATE lanekeeper.dead AS d
            SET resolution = 'requeued', resolved_at = clock_timestamp(), requeued_at = NULL, after_seq = NULL
            WHERE d.dead_id = p_dead_ids[i] RETURNING d.seq INTO v_seq;
            DELETE FROM lanekeeper.outcome AS o
            WHERE o.lane_id = v_lane_id AND o.seq = v_seq AND o.kind = 'dead_lettered';
        ELSE
            UPDATE lanekeeper.dead AS d
            SET requeued_at = NULL, after_seq = NULL, died_at = clock_timestamp(), error = p_errors[i],
                attempts = p_attempts[i], crashes = p_crashes[i]
            WHERE d.dead_id = p_dead_ids[i] RETURNING d.seq INTO v_seq;
            UPDATE lanekeeper.outcome AS o SET error = p_errors[i]
            WHERE o.lane_id = v_lane_id AND o.seq = v_seq AND o.kind = 'dead_lettered';
        END IF;
        UPDATE lanekeeper.progress AS p
        SET requeued_after = lanekeeper.requeued_after(v_lane_id)
        -- The range of possible versions keeps the look-up from older, dead ones.
        WHERE p.lane_id = v_lane_id AND p.version + p.step = p_versions[p_ords[i]] + 1
          AND p.version BETWEEN p_versions[p_ords[i]] - 14 AND p_versions[p_ords[i]] + 1;
    END LOOP;
END
$$;
