-- Goes on with all replays: gives lanes their turn, lets go of those of a replay that was paused or is ending, and ends
-- replays without lanes. Returns how many lanes began, and how many replays are to be looked at again soon. One process at a
-- time; the others do nothing. Workers call it while there is a replay, and whoever starts or changes one.
--
-- A lane that has its turn is `active`, and its progress has requeued_after -1: a claim reads that with the rest, and the
-- holder delivers the range as heads before everything else, as it does requeued dead letters. Its cursor stays where it is.
-- So no settlement differs for the log (I4, I5), limits on undelivered events do not count what is replayed, and a lane that
-- is not replayed pays nothing. No more than `concurrency` lanes are active at once: the rest of a worker's room is for
-- live events.
--
-- Whoever changes what a lane delivers first holds its lock, so a lane is begun and let go of only where that is free (I2).
-- If all that wait are held, one of them is waited for, so that a busy lane has its turn. A holder learns itself that its
-- replay was paused or cancelled, with its next range (next_replayed). Nothing else is waited for: rows that somebody has
-- locked are left for the next call. Parked lanes wait.
-- Index: replay_unfinished, replay_lane_waiting, replay_lane_active. Rows: 200 lanes that begin, of all replays together, since
-- their locks are held until the commit; 200 that are let go of, in no order, since some may be held; 10,000 waiting ones of a
-- replay that ends.
CREATE OR REPLACE FUNCTION lanekeeper.feed_replays(OUT begun bigint, OUT unfinished bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_replay record;
    v_lane   record;
    v_room   bigint;
    v_begun  bigint;
    v_busy   bigint;
    v_waited boolean := false;
BEGIN
    begun := 0; unfinished := 0;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(8)) THEN
        unfinished := (SELECT count(*) FROM lanekeeper.replay AS y WHERE y.ended_at IS NULL AND y.paused_at IS NULL);
        RETURN;
    END IF;
    UPDATE lanekeeper.replay AS y SET ending = 'removed', end_reason = 'the subscription was removed'
    FROM lanekeeper.subscription AS s
    WHERE y.ended_at IS NULL AND y.ending IS NULL AND s.subscription_id = y.subscription_id AND s.removed_at IS NOT NULL;
    FOR v_replay IN
        SELECT y.replay_id, y.concurrency, y.paused_at IS NULL AND y.ending IS NULL AS runs, y.ending
        FROM lanekeeper.replay AS y WHERE y.ended_at IS NULL
        ORDER BY y.replay_id FOR KEY SHARE SKIP LOCKED
    LOOP
        IF v_replay.runs THEN
            v_begun := 0;
            v_busy := NULL;
            v_room := least(
                v_replay.concurrency
                - (SELECT count(*) FROM lanekeeper.replay_lane AS r WHERE r.replay_id = v_replay.replay_id AND r.state = 'active'),
                200 - begun);
            FOR v_lane IN
                SELECT r.lane_id FROM lanekeeper.replay_lane AS r
                WHERE r.replay_id = v_replay.replay_id AND r.state = 'waiting' AND NOT EXISTS (
                    SELECT FROM lanekeeper.progress AS p WHERE p.lane_id = r.lane_id AND p.parked_at IS NOT NULL)
                ORDER BY r.lane_id LIMIT v_room * 2 + 64
            LOOP
                EXIT WHEN v_begun >= v_room;
                IF pg_try_advisory_xact_lock(lanekeeper.lane_lock(v_lane.lane_id)) THEN
                    v_begun := v_begun + lanekeeper.turn_replay(v_replay.replay_id, v_lane.lane_id, 'active')::int;
                ELSE
                    v_busy := CASE WHEN random() < 0.5 THEN v_lane.lane_id ELSE coalesce(v_busy, v_lane.lane_id) END;
                END IF;
            END LOOP;
            IF v_begun = 0 AND begun = 0 AND v_busy IS NOT NULL AND NOT v_waited THEN
                v_waited := true;
                BEGIN
                    PERFORM pg_advisory_xact_lock(lanekeeper.lane_lock(v_busy));
                    v_begun := lanekeeper.turn_replay(v_replay.replay_id, v_busy, 'active')::int;
                EXCEPTION WHEN lock_not_available THEN
                    NULL;
                END;
            END IF;
            begun := begun + v_begun;
        ELSE
            FOR v_lane IN
                SELECT r.lane_id FROM lanekeeper.replay_lane AS r
                WHERE r.replay_id = v_replay.replay_id AND r.state = 'active' ORDER BY random() LIMIT 200
            LOOP
                IF pg_try_advisory_xact_lock(lanekeeper.lane_lock(v_lane.lane_id)) THEN
                    PERFORM lanekeeper.turn_replay(v_replay.replay_id, v_lane.lane_id,
                                                   CASE WHEN v_replay.ending IS NULL THEN 'waiting' ELSE 'cut' END);
                END IF;
            END LOOP;
            IF v_replay.ending IS NOT NULL THEN
                UPDATE lanekeeper.replay_lane AS r SET state = 'cut'
                FROM (
                    SELECT w.lane_id FROM lanekeeper.replay_lane AS w
                    WHERE w.replay_id = v_replay.replay_id AND w.state = 'waiting'
                    ORDER BY w.lane_id LIMIT 10000 FOR UPDATE SKIP LOCKED
                ) AS w
                WHERE r.replay_id = v_replay.replay_id AND r.lane_id = w.lane_id;
            END IF;
        END IF;
        WITH gone AS (
            DELETE FROM lanekeeper.replay_lane AS r WHERE r.replay_id = v_replay.replay_id AND r.state IN ('done', 'cut')
            RETURNING r.state, r.delivered, r.exhausted
        )
        UPDATE lanekeeper.replay AS y
        SET lanes_done = y.lanes_done + g.done, delivered = y.delivered + g.delivered, exhausted = y.exhausted + g.exhausted
        FROM (
            SELECT count(*) FILTER (WHERE g.state = 'done') AS done, sum(g.delivered) AS delivered, sum(g.exhausted) AS exhausted
            FROM gone AS g
        ) AS g
        WHERE y.replay_id = v_replay.replay_id AND g.delivered IS NOT NULL;
        IF EXISTS (SELECT FROM lanekeeper.replay_lane AS r WHERE r.replay_id = v_replay.replay_id) THEN
            unfinished := unfinished + (v_replay.runs OR v_replay.ending IS NOT NULL OR EXISTS (
                SELECT FROM lanekeeper.replay_lane AS r WHERE r.replay_id = v_replay.replay_id AND r.state = 'active'))::int;
        ELSE
            UPDATE lanekeeper.replay AS y SET ending = coalesce(y.ending, 'done'), ended_at = clock_timestamp()
            WHERE y.replay_id = v_replay.replay_id;
        END IF;
    END LOOP;
END
$$;
