-- Drops up to ten restored days that were kept long enough and that no replay needs; returns how many. They stay in their
-- files: nothing is archived again.
--
-- One process at a time, and none while a day is restored; no replay starts meanwhile, since that takes the lock of `apply`.
-- Only the drop itself locks restored_event. It waits for 200 ms at most, because replays queue behind it; the next round
-- tries again.
-- Index: event's primary key for each lane that is replayed. Rows: those of restored_file.
CREATE OR REPLACE FUNCTION lanekeeper.drop_restored_days() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_day     date;
    v_name    text;
    v_needed  boolean;
    v_dropped bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM lanekeeper.restored_file AS f WHERE f.keep_until < clock_timestamp())
       OR NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(9))
       OR NOT pg_try_advisory_xact_lock(lanekeeper.apply_lock()) THEN
        RETURN 0;
    END IF;
    FOR v_day IN
        SELECT f.day FROM lanekeeper.restored_file AS f
        GROUP BY f.day HAVING max(f.keep_until) < clock_timestamp() ORDER BY f.day LIMIT 10
    LOOP
        v_name := 'restored_' || to_char(v_day, 'YYYYMMDD');
        EXECUTE format($query$
            SELECT EXISTS (
                SELECT FROM lanekeeper.replay_lane AS r
                JOIN lanekeeper.lane AS l ON l.lane_id = r.lane_id
                JOIN lanekeeper.%I AS e ON e.session_id = l.session_id AND e.seq > r.replayed_to AND e.seq <= r.to_seq
                WHERE r.state IN ('waiting', 'active'))
            $query$, v_name) INTO v_needed;
        CONTINUE WHEN v_needed;
        BEGIN
            EXECUTE format('LOCK TABLE ONLY lanekeeper.restored_event, ONLY lanekeeper.%I IN ACCESS EXCLUSIVE MODE', v_name);
            EXECUTE format('DROP TABLE lanekeeper.%I', v_name);
            DELETE FROM lanekeeper.restored_file AS f WHERE f.day = v_day;
            v_dropped := v_dropped + 1;
        EXCEPTION
            WHEN lock_not_available THEN
                NULL;
            -- A user's view on the partition, for example: the rest of maintenance goes on.
            WHEN dependent_objects_still_exist OR insufficient_privilege THEN
                RAISE WARNING 'restored day % cannot be dropped: %', v_day, SQLERRM;
        END;
    END LOOP;
    RETURN v_dropped;
END
$$;
