-- The days past p_retention_days that have events and no archive file on record, the oldest first. A day that is dropped
-- meanwhile is left out. Rows: one for each partition of the log.
CREATE OR REPLACE FUNCTION lanekeeper.days_to_archive(p_retention_days int) RETURNS SETOF date
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_day date;
    v_any boolean;
BEGIN
    FOR v_day IN
        SELECT p.day FROM (
            SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
            FROM pg_catalog.pg_inherits AS i
            JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'lanekeeper.event'::regclass
        ) AS p
        WHERE p.day < (clock_timestamp() AT TIME ZONE 'UTC')::date - p_retention_days
          AND NOT EXISTS (SELECT FROM lanekeeper.archived_day AS a WHERE a.day = p.day AND a.dropped_at IS NULL)
        ORDER BY p.day
    LOOP
        BEGIN
            EXECUTE format('SELECT EXISTS (SELECT FROM lanekeeper.%I)', 'event_' || to_char(v_day, 'YYYYMMDD'))
            INTO v_any;
        EXCEPTION WHEN undefined_table THEN
            -- Dropped since.
            v_any := false;
        END;
        IF v_any THEN
            RETURN NEXT v_day;
        END IF;
    END LOOP;
END
$$;
