-- Takes back what follow_stream() registered on this connection, and clears the stream's flag where no worker is
-- registered any more. A worker that registers meanwhile does not get its lock, and calls again.
CREATE OR REPLACE FUNCTION lanekeeper.unfollow_stream(p_stream_id int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
BEGIN
    PERFORM pg_advisory_unlock_shared(lanekeeper.follow_lock(p_stream_id));
    IF pg_try_advisory_xact_lock(lanekeeper.follow_lock(p_stream_id)) THEN
        UPDATE lanekeeper.stream AS s SET followed = false WHERE s.stream_id = p_stream_id AND s.followed;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    -- The flag stays, and costs a probe an append: the next one clears it.
    NULL;
END
$$;
