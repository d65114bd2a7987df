-- Registers this connection as one that wants to be notified of a stream's events. Returns the number of a transaction:
-- appends of transactions that had begun before it may go without a notification, and the caller scans until all of them
-- are over (follow_is_complete). NULL: a producer holds the lock; call again.
--
-- The lock is the session's and goes with the connection, so a dead worker's followers cost producers one probe an append
-- until the next unfollow_stream() of the stream takes the flag away. The lock comes before the flag, and
-- unfollow_stream() clears the flag only where nobody has the lock.
CREATE OR REPLACE FUNCTION lanekeeper.follow_stream(p_stream_id int) RETURNS xid8
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
BEGIN
    IF NOT pg_try_advisory_lock_shared(lanekeeper.follow_lock(p_stream_id)) THEN
        RETURN NULL;
    END IF;
    -- Also where it is set: whoever set it may not have committed yet, and this waits for them.
    UPDATE lanekeeper.stream AS s SET followed = true WHERE s.stream_id = p_stream_id AND NOT s.followed;
    RETURN pg_current_xact_id();
EXCEPTION WHEN lock_not_available THEN
    PERFORM pg_advisory_unlock_shared(lanekeeper.follow_lock(p_stream_id));
    RETURN NULL;
END
$$;
