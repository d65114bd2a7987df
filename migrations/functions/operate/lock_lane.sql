-- Takes a lane's lock until the transaction ends; raises LK007 where the caller's lock_timeout, 5 s, passes first.
CREATE OR REPLACE FUNCTION lanekeeper.lock_lane(p_lane_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lanekeeper.lane_lock(p_lane_id));
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'LK007',
        MESSAGE = format('lane %s is being delivered and was not let go within 5 s: nothing was changed', p_lane_id),
        HINT = 'Try again, or pause the subscription first.';
END
$$;
