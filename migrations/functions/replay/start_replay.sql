-- Has past events of a subscription delivered again: those of replay_ranges(). Returns the replay's id. In one transaction,
-- all or nothing; workers do it from its commit on (feed_replays). What is replayed is decided here: what is delivered later
-- is not part of it.
--
-- A lane is in one replay at a time. While this runs, no `apply` changes what a lane is to get, and no day of the log is
-- dropped: the drop takes the same lock. SQLSTATEs: those of replay_ranges(); LK006 out of bounds, or nothing to replay;
-- LK007 an `apply` is under way; LK011 a lane is being replayed already.
-- Rows: one for each lane.
CREATE OR REPLACE FUNCTION lanekeeper.start_replay(
    p_subscription text, p_sessions text DEFAULT NULL, p_from_seq bigint DEFAULT NULL, p_to_seq bigint DEFAULT NULL,
    p_from_at timestamptz DEFAULT NULL, p_to_at timestamptz DEFAULT NULL, p_rate text DEFAULT NULL,
    p_interval_us bigint DEFAULT NULL, p_concurrency int DEFAULT 32, p_reason text DEFAULT NULL,
    p_started_by text DEFAULT session_user
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    v_subscription int;
    v_replay       bigint;
    v_other        record;
BEGIN
    IF octet_length(p_sessions) NOT BETWEEN 1 AND 2000 OR octet_length(p_reason) > 1000
       OR p_concurrency NOT BETWEEN 1 AND 1000 OR p_interval_us < 1 OR (p_rate IS NULL) <> (p_interval_us IS NULL)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'the sessions, the rate, the concurrency or the reason of the replay is out of bounds: nothing was started',
            HINT = 'Sessions have 1 to 2000 bytes, a reason 1000 at most; a concurrency is from 1 to 1000, and a rate has its '
                   'interval in microseconds.';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(lanekeeper.apply_lock());
    IF (SELECT count(*) FROM (SELECT FROM lanekeeper.replay AS y WHERE y.ended_at IS NULL LIMIT 100) AS y) = 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'there are 100 replays that have not ended: nothing was started',
            HINT = 'List them with `lanekeeper replay list`; cancel those that nobody needs.';
    END IF;
    INSERT INTO lanekeeper.replay (subscription_id, sessions, from_seq, to_seq, from_at, to_at, rate, interval_us,
                                   concurrency, reason, started_by)
    SELECT s.subscription_id, p_sessions, p_from_seq, p_to_seq, p_from_at, p_to_at, p_rate, p_interval_us, p_concurrency,
           p_reason, p_started_by
    FROM lanekeeper.subscription AS s WHERE s.name = p_subscription AND s.removed_at IS NULL
    RETURNING replay_id, subscription_id INTO v_replay, v_subscription;
    -- An unknown subscription is refused here, and a projection.
    WITH found AS MATERIALIZED (
        SELECT r.lane_id, r.from_seq, r.from_day, r.to_seq, r.events, r.bytes
        FROM lanekeeper.replay_ranges(p_subscription, p_sessions, p_from_seq, p_to_seq, p_from_at, p_to_at) AS r
    ), lane AS (
        INSERT INTO lanekeeper.replay_lane (replay_id, lane_id, replayed_to, from_day, to_seq)
        SELECT v_replay, f.lane_id, f.from_seq - 1, f.from_day, f.to_seq FROM found AS f
    ), total AS (
        SELECT count(*) AS lanes, sum(f.events) AS events, sum(f.bytes) AS bytes FROM found AS f
    )
    UPDATE lanekeeper.replay AS y SET lanes = t.lanes, events = t.events, bytes = t.bytes
    FROM total AS t WHERE y.replay_id = v_replay AND t.lanes > 0;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'no event that was delivered, and that the log still has, is in this range: nothing was started',
            HINT = 'What is not delivered yet needs no replay. Days in the archive are restored first: `lanekeeper archive list`.';
    END IF;
    INSERT INTO lanekeeper.operation (action, subscription_id, reason)
    VALUES ('replay', v_subscription, left(format('replay %s%s', v_replay, ': ' || p_reason), 2000));
    PERFORM lanekeeper.feed_replays();
    RETURN v_replay;
EXCEPTION
    WHEN unique_violation THEN
        SELECT y.replay_id, n.name INTO v_other
        FROM lanekeeper.replay_ranges(p_subscription, p_sessions, p_from_seq, p_to_seq, p_from_at, p_to_at) AS r
        JOIN lanekeeper.replay_lane AS y ON y.lane_id = r.lane_id AND y.state IN ('waiting', 'active')
        JOIN lanekeeper.lane AS l ON l.lane_id = r.lane_id
        JOIN lanekeeper.session AS n ON n.session_id = l.session_id
        ORDER BY r.lane_id LIMIT 1;
        RAISE EXCEPTION USING ERRCODE = 'LK011',
            MESSAGE = format('session %L is being replayed to %s already, by replay %s: nothing was started',
                             left(v_other.name, 200), p_subscription, v_other.replay_id),
            HINT = 'Wait until it has ended, or cancel it with `lanekeeper replay cancel`.';
    WHEN lock_not_available THEN
        RAISE EXCEPTION USING ERRCODE = 'LK007',
            MESSAGE = 'an apply, or the drop of an old day, is under way and did not end within 5 s: nothing was started',
            HINT = 'Try again.';
END
$$;
