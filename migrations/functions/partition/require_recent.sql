-- True where the recent partitions begin on p_day or before it; raises 55000 otherwise.
--
-- A fetch of the recent partitions calls it with the oldest day of its lanes, so that it can never miss an event that
-- lies before them (I4). The worker then repeats the fetch for such a lane on the whole log.
CREATE OR REPLACE FUNCTION lanekeeper.require_recent(p_day date) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since <= p_day) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the recent part of the log begins after %s', p_day);
    END IF;
    RETURN true;
END
$$;
