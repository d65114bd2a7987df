-- Creates tomorrow's partition in the last hour of a day, where no worker has done so. Called by an append that is its
-- session's first of the day.
--
-- A partition that is created after midnight blocks every producer until the transaction that created it ends. This
-- never waits for longer than 10 ms, and does nothing while another process creates partitions.
CREATE OR REPLACE FUNCTION lanekeeper.create_event_partition_ahead(p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms'
AS $$
DECLARE
    v_tomorrow date := (p_now AT TIME ZONE 'UTC')::date + 1;
BEGIN
    IF date_part('hour', p_now AT TIME ZONE 'UTC') = 23
       AND to_regclass('lanekeeper.event_' || to_char(v_tomorrow, 'YYYYMMDD')) IS NULL
       AND pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(1)) THEN
        BEGIN
            PERFORM lanekeeper.create_event_partition(v_tomorrow);
        EXCEPTION WHEN lock_not_available THEN
            -- Another session has the log locked: the next append creates it, or a worker.
            NULL;
        END;
    END IF;
END
$$;
