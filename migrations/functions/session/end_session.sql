-- Closes a session with the terminal event that the caller is about to append as p_seq, in the caller's transaction: from its
-- commit on, appends are refused with LK002. What is there is delivered first, the terminal event last, as after
-- close_session() with `drain`; the lifecycle feed is told when that is done, by finish_closing(). A transaction that is rolled
-- back leaves the session open. reopen_session() undoes it, and the next terminal event ends the session again.
--
-- The caller has the session's append lock, has seen that the session is not closed, and inserts the event afterwards: so a
-- session that was never reopened has one terminal event at the most, behind all others (I1).
-- Index: session's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.end_session(p_session_id bigint, p_seq bigint, p_event_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE lanekeeper.session AS s
    SET closed_at = clock_timestamp(), closed_seq = p_seq, close_reason = format('ended by %s', p_event_type),
        draining = true, lanes_version = CASE WHEN s.lanes_version < 0 THEN s.lanes_version ELSE -3 END
    WHERE s.session_id = p_session_id;
    INSERT INTO lanekeeper.closed_session AS c (session_id) VALUES (p_session_id) ON CONFLICT DO NOTHING;
END
$$;
