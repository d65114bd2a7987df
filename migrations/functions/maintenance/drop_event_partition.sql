-- Drops the partition of one day, unless a lane still needs an event of it. Returns dropped | needed | busy |
-- copying | unarchived.
--
-- Two calls, each a transaction of its own. The first writes the last seq of sessions that have no newer event to
-- session_tail; the second drops the day when every snapshot sees those rows. Otherwise a producer in REPEATABLE READ
-- would see neither the events nor the tail, and start at seq 1 again (I1).
-- Whether the day is needed is judged again under locks that keep the answer true: nothing is written to the day (a producer
-- may have appended to it before midnight and not committed), and no apply changes what a lane is to get. With p_archived,
-- the day goes only where a file is on record with as many events as the day has, counted under the same lock; events are
-- never changed, so equal counts mean equal events.
-- Events of streams that keep theirs are copied first, up to 100,000 in a call, and count like the tails: the day goes when
-- every snapshot sees them elsewhere.
-- Only the drop itself locks the log. It waits for 200 ms at most, because producers queue behind it; the next round tries
-- again. A day that something else depends on, such as a user's view, is kept with a warning.
CREATE OR REPLACE FUNCTION lanekeeper.drop_event_partition(p_day date, p_archived boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_name   text := 'event_' || to_char(p_day, 'YYYYMMDD');
    v_xact   xid8;
    v_tails  bigint;
    v_kept   bigint;
    v_events bigint;
BEGIN
    IF p_day >= (clock_timestamp() AT TIME ZONE 'UTC')::date OR lanekeeper.day_is_needed(p_day) THEN
        RETURN 'needed';
    END IF;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.apply_lock()) THEN
        RETURN 'busy';
    END IF;
    EXECUTE format('LOCK TABLE ONLY lanekeeper.%I IN SHARE MODE', v_name);
    IF lanekeeper.day_is_needed(p_day) THEN
        RETURN 'needed';
    END IF;
    IF p_archived THEN
        -- Events are never changed and go with their day: as many are the same ones.
        EXECUTE format('SELECT count(*) FROM lanekeeper.%I', v_name) INTO v_events;
        DELETE FROM lanekeeper.archived_day AS a
        WHERE a.day = p_day AND a.dropped_at IS NULL AND a.events <> v_events;
        IF v_events > 0 AND NOT EXISTS (
            SELECT FROM lanekeeper.archived_day AS a WHERE a.day = p_day AND a.dropped_at IS NULL)
        THEN
            RETURN 'unarchived';
        END IF;
    END IF;
    EXECUTE format($query$
        WITH tail AS (
            INSERT INTO lanekeeper.session_tail (session_id, seq)
            SELECT e.session_id, max(e.seq) FROM lanekeeper.%I AS e
            WHERE NOT EXISTS (
                SELECT FROM lanekeeper.event AS newer WHERE newer.session_id = e.session_id AND newer.day > %L::date)
            GROUP BY 1
            ON CONFLICT DO NOTHING
            RETURNING session_id, seq
        ), superseded AS (
            DELETE FROM lanekeeper.session_tail AS t USING tail
            WHERE t.session_id = tail.session_id AND t.seq < tail.seq
        )
        SELECT count(*) FROM tail
        $query$, v_name, p_day) INTO v_tails;
    v_kept := lanekeeper.keep_events(p_day, 100000);
    SELECT d.xact INTO v_xact FROM lanekeeper.expiring_day AS d WHERE d.day = p_day;
    IF v_xact IS NULL OR v_tails > 0 OR v_kept > 0 THEN
        INSERT INTO lanekeeper.expiring_day AS d (day, xact) VALUES (p_day, pg_current_xact_id())
        ON CONFLICT (day) DO UPDATE SET xact = excluded.xact;
        RETURN CASE WHEN v_kept >= 100000 THEN 'copying' ELSE 'busy' END;
    END IF;
    IF NOT lanekeeper.seen_by_every_snapshot(v_xact) THEN
        RETURN 'busy';
    END IF;
    -- Producers queue behind this request: it gives up soon, and the next round tries again.
    EXECUTE format('LOCK TABLE ONLY lanekeeper.event, ONLY lanekeeper.%I IN ACCESS EXCLUSIVE MODE', v_name);
    EXECUTE format('DROP TABLE lanekeeper.%I', v_name);
    DELETE FROM lanekeeper.expiring_day AS d WHERE d.day = p_day;
    UPDATE lanekeeper.archived_day AS a SET dropped_at = clock_timestamp()
    WHERE a.day = p_day AND a.dropped_at IS NULL;
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN
        RETURN 'busy';
    -- A user's view on the partition, for example: the rest of maintenance goes on.
    WHEN dependent_objects_still_exist OR insufficient_privilege THEN
        RAISE WARNING 'day % of the log cannot be dropped: %', p_day, SQLERRM;
        RETURN 'needed';
END
$$;
