-- Creates tomorrow's partition from 22:00 UTC on, where nobody has done so. Called by an append that is its session's first of
-- the day, by every sixty-fourth of a session, and by bulk appends.
--
-- A partition that is created after midnight blocks every producer until the transaction that created it ends. So does one
-- that a transaction creates which is still open at midnight: until the last hour, a transaction that has been open for a
-- second leaves it to others. No earlier than 22:00, because each append looks into tomorrow's partition too, once there
-- is one: 57 µs of CPU in place of 47. This never waits for longer than 10 ms, and does nothing while another process
-- creates partitions.
CREATE OR REPLACE FUNCTION lanekeeper.create_event_partition_ahead(p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms'
AS $$
DECLARE
    v_hour     int := date_part('hour', p_now AT TIME ZONE 'UTC');
    v_tomorrow date;
BEGIN
    IF v_hour < 22 OR v_hour < 23 AND now() < p_now - interval '1 s' THEN
        RETURN;
    END IF;
    v_tomorrow := (p_now AT TIME ZONE 'UTC')::date + 1;
    IF to_regclass('lanekeeper.event_' || to_char(v_tomorrow, 'YYYYMMDD')) IS NULL THEN
        -- The lock too: where nothing is created it is let go, and another append may try.
        BEGIN
            IF pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(1, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) THEN
                PERFORM lanekeeper.create_event_partition(v_tomorrow);
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            -- Another session has the log locked: the next append creates it, or a worker.
            NULL;
        END;
    END IF;
END
$$;
