-- The next range of a lane that is replayed: what is behind replayed_to, up to `to_seq`, from `wait_ms` on. to_seq is NULL
-- where the replay was paused or is ending: the holder settles that then, and the lane is let go of. No replay_id:
-- the lane is not replayed any more. has_requeued: the lane has requeued dead letters, which come behind its replay. The
-- caller holds the lane.
--
-- At a rate, a range is granted to the lane: up to p_most events, and no more than a tenth of a second's. The replay's next
-- grant begins when this one's time is over, whichever lane and worker asks. The grant is on record before anything of it is
-- delivered, so whatever fails, no more is delivered than the rate allows but for repeats of the same events.
-- Index: replay_of_lane, dead_requeued, replay's and event's primary keys. Rows: one; p_most events.
CREATE OR REPLACE FUNCTION lanekeeper.next_replayed(
    IN p_lane_id bigint, IN p_most int,
    OUT replay_id bigint, OUT subscription_id int, OUT replayed_to bigint, OUT from_day date, OUT to_seq bigint,
    OUT is_last boolean, OUT wait_ms bigint, OUT has_requeued boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_lane record;
    v_many int;
    v_end  record;
BEGIN
    SELECT r.replay_id, r.replayed_to, r.from_day, r.to_seq, r.granted_to, r.granted_at, y.interval_us,
           y.paused_at IS NULL AND y.ending IS NULL AS runs, l.session_id, y.subscription_id, s.events,
           EXISTS (SELECT FROM lanekeeper.dead AS d WHERE d.lane_id = p_lane_id AND d.after_seq IS NOT NULL) AS requeued
    INTO v_lane
    FROM lanekeeper.replay_lane AS r
    JOIN lanekeeper.replay AS y ON y.replay_id = r.replay_id
    JOIN lanekeeper.subscription AS s ON s.subscription_id = y.subscription_id
    JOIN lanekeeper.lane AS l ON l.lane_id = r.lane_id
    WHERE r.lane_id = p_lane_id AND r.state = 'active';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    replay_id := v_lane.replay_id;
    subscription_id := v_lane.subscription_id;
    replayed_to := v_lane.replayed_to;
    from_day := v_lane.from_day;
    has_requeued := v_lane.requeued;
    wait_ms := 0;
    IF NOT v_lane.runs THEN
        RETURN;
    END IF;
    to_seq := v_lane.to_seq;
    is_last := true;
    IF v_lane.interval_us IS NULL THEN
        RETURN;
    END IF;
    IF v_lane.granted_to IS NULL OR v_lane.granted_to <= v_lane.replayed_to THEN
        v_many := least(p_most, greatest(1, 100000 / v_lane.interval_us))::int;
        SELECT max(e.seq) AS seq, count(*) AS events INTO v_end
        FROM (
            SELECT e.seq FROM lanekeeper.past_event AS e
            WHERE e.session_id = v_lane.session_id AND e.seq > v_lane.replayed_to AND e.seq <= v_lane.to_seq
              AND e.day >= v_lane.from_day
              AND (v_lane.events IS NULL OR e.event_type = ANY (v_lane.events)) AND NOT lanekeeper.is_cancelled(e.headers)
            ORDER BY e.seq LIMIT v_many
        ) AS e;
        -- Less than was asked for: nothing comes behind it.
        v_lane.granted_to := CASE WHEN v_end.events < v_many THEN v_lane.to_seq ELSE v_end.seq END;
        UPDATE lanekeeper.replay AS y
        SET next_at = greatest(y.next_at, clock_timestamp()) + v_end.events * v_lane.interval_us * interval '1 us'
        WHERE y.replay_id = v_lane.replay_id
        RETURNING y.next_at - v_end.events * v_lane.interval_us * interval '1 us' INTO v_lane.granted_at;
        UPDATE lanekeeper.replay_lane AS r SET granted_to = v_lane.granted_to, granted_at = v_lane.granted_at
        WHERE r.replay_id = v_lane.replay_id AND r.lane_id = p_lane_id;
    END IF;
    to_seq := v_lane.granted_to;
    is_last := to_seq >= v_lane.to_seq;
    wait_ms := greatest(0, ceil(extract(epoch FROM v_lane.granted_at - clock_timestamp()) * 1000))::bigint;
END
$$;
